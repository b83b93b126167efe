"""Tests that who is not let in learns why, on a real broker with SASL and TLS; and what the hint says lets him in."""

import errno
import re
import socket
import ssl
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiokafka.errors import IllegalOperation, KafkaConnectionError, SaslAuthenticationFailed

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import NotAuthenticated, Unreachable
from snapreplay.service.kafka import connection, refusals
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.kafka.feeding import KafkaAppender
from snapreplay.service.kafka.refusals import BrokerAddress, NotConnected
from snapreplay.service.kafka.shared import Client, Shared
from tests.support.deadlines import scaled, within
from tests.support.guarded import Guarded, guarded_broker
from tests.support.wire import detour, listening, refusing

pytestmark = pytest.mark.kafka
DROPPING = "127.0.0.9"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """One broker for this file."""
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A broker that pauses for a moment is no silent one."""
    monkeypatch.setattr(refusals, "KNOCK_S", scaled(10))
    monkeypatch.setattr(refusals, "ALL_S", scaled(30))


async def refusal(settings: Settings) -> NotAuthenticated | None:
    """Ask any broker; return why access is refused, if it is."""
    try:
        await KafkaAdmin(settings).topic_names()
    except NotAuthenticated as error:
        return error
    except Unreachable:
        pass
    return None


def wrong_logins(here: Guarded):
    """The kafka settings, what is said of them, what the hint names."""
    login = r"kafka\.sasl\.plain\.username and kafka\.sasl\.plain\.password"
    plain = here.as_user("wrong", mechanism="PLAIN")
    yield here.as_user("wrong"), "refuses user 'ada' by SCRAM-SHA-256: .*invalid credentials", login
    yield plain, "refuses user 'ada' by PLAIN: .*Invalid username or password", login
    unknown = here.as_user() | {"sasl.plain.username": "bob"}
    yield unknown, "refuses user 'bob' by SCRAM-SHA-256", login
    mechanism = here.as_user(mechanism="SCRAM-SHA-512")
    said = "does not offer SASL mechanism SCRAM-SHA-512, only PLAIN, SCRAM-SHA-256|only SCRAM-SHA-256, PLAIN"
    yield mechanism, said, r"--set kafka\.sasl\.mechanism=(PLAIN|SCRAM-SHA-256)"


def wrong_certificates(here: Guarded):
    """Yield settings as `wrong_logins` does."""
    cafile = r"kafka\.ssl\.cafile to the PEM file of the authority"
    untrusted = "is not trusted: unable to get local issuer certificate"
    other, other_key = (str(here.folder / f"other.{end}") for end in ("pem", "key"))
    yield here.by_certificate(ssl_cafile=other), untrusted, cafile
    yield here.by_certificate(ssl_cafile=None), untrusted, cafile
    name = here.by_certificate() | {"bootstrap.servers": f"localhost:{here.tls.rpartition(':')[2]}"}
    said = "is not trusted: Hostname mismatch, certificate is not valid for 'localhost'"
    yield name, said, r"--set kafka\.ssl\.check\.hostname=false"
    none = here.by_certificate(ssl_certfile=None, ssl_keyfile=None)
    certfile = r"kafka\.ssl\.certfile and kafka\.ssl\.keyfile to"
    yield none, "refuses a client without a certificate: .*ALERT", certfile
    foreign = here.by_certificate(ssl_certfile=other, ssl_keyfile=other_key)
    yield foreign, "refuses the client certificate: .*ALERT", certfile


def wrong_protocols(here: Guarded):
    """Yield settings as `wrong_logins` does; the address of one listener with the protocol of another."""
    at_open, at_sasl, at_tls = ({"bootstrap.servers": a} for a in (here.open, here.sasl, here.tls))
    sasl, ssl = here.as_user(), here.by_certificate()
    both = ssl | sasl | at_tls | {"security.protocol": "SASL_SSL"}
    for given, said, protocol in (
        (at_sasl, "requires SASL", "SASL_PLAINTEXT, with kafka.sasl.mechanism"),
        (at_tls, "uses TLS, but kafka.security.protocol is PLAINTEXT", "SSL$"),
        (sasl | at_open, "does not use SASL, but kafka.security.protocol is SASL", "PLAINTEXT$"),
        (sasl | at_tls, "uses TLS, but kafka.security.protocol is SASL", "SASL_SSL"),
        (both, "does not use SASL, but kafka.security.protocol is SASL_SSL", "SSL$"),
        (ssl | at_open, "does not use TLS", "PLAINTEXT$"),
    ):
        yield given, said, rf"--set kafka\.security\.protocol={protocol}"


@pytest.mark.parametrize("wrong", [wrong_logins, wrong_certificates, wrong_protocols])
async def test_who_is_kept_out_learns_why(here, wrong):
    """By the broker's address, its own reason and the setting to correct."""
    for given, said, hint in wrong(here):
        error = await refusal(Settings(kafka=given))
        assert isinstance(error, NotAuthenticated), said
        assert error.message.startswith(f"the broker at {given['bootstrap.servers']} denies access")
        assert re.search(said, error.message)
        assert re.search(hint, error.hint)


async def test_settings_that_a_hint_names_let_us_in(here):
    """Mechanism and protocol are known by what the listener offers: set, nothing keeps us out any more."""
    port = here.tls.rpartition(":")[2]
    for given in (
        here.as_user(mechanism="SCRAM-SHA-512"),
        here.as_user() | {"bootstrap.servers": here.open},
        here.by_certificate() | {"bootstrap.servers": f"localhost:{port}"},
    ):
        error = await refusal(Settings(kafka=given))
        ((name, value),) = re.findall(r"--set kafka\.(\S+)=(\S+)", error.hint if error else "")
        assert await refusal(Settings(kafka=known_only({**given, name: value}))) is None


def known_only(given):
    """Leave out the credentials that another protocol has no use for: settings refuse them."""
    sasl = given["security.protocol"].startswith("SASL")
    return {name: value for name, value in given.items() if sasl or not name.startswith("sasl.")}


async def test_a_login_that_succeeds_or_finds_no_broker_is_not_refused(here, closed_port):
    """With each of the right credentials; with an address without a listener, and an unknown name."""
    known: tuple[dict[str, Any], ...] = (
        here.as_user(),
        here.as_user(mechanism="PLAIN"),
        here.by_certificate(),
        {"bootstrap.servers": here.open},
        {"bootstrap.servers": f"127.0.0.1:{closed_port}"},
        {"bootstrap.servers": "no.such.host.invalid:9092"},
        here.as_user("wrong") | {"bootstrap.servers": f"127.0.0.1:{closed_port}"},
    )
    for given in known:
        assert await refusal(Settings(kafka=given)) is None, given


async def test_a_client_that_was_made_before_connects_with_the_renewed_certificate(here, tmp_path):
    """The group's member has one client for as long as the process lives, and a certificate ends before."""
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes((here.folder / "other.pem").read_bytes())
    shared = Shared(Settings(kafka=here.by_certificate(ssl_cafile=str(trusted))))
    shared.hold()
    client = Client(shared)
    with pytest.raises(NotConnected):
        await client.start()
    trusted.write_bytes((here.folder / "ca.pem").read_bytes())
    await client.start()
    assert await client.ready(await client.anybody())
    await client.close()
    await shared.leave()


async def test_a_broker_that_is_down_hides_no_refusal(here, closed_port):
    """Of two addresses that which answers says why."""
    servers = f"127.0.0.1:{closed_port},{here.sasl}"
    error = await refusal(Settings(kafka=here.as_user("wrong") | {"bootstrap.servers": servers}))
    assert error is not None
    assert here.sasl in error.message


async def test_every_client_of_ours_says_why(here, closed_port):
    """Admin, reader, transactional and plain producer, the doctor's; without a broker they are Unreachable."""

    async def ask(settings):
        async with KafkaDiagnostics(settings):
            pass

    def asked(settings):
        cluster = KafkaCluster(settings)
        yield lambda: KafkaAdmin(settings).facts()
        yield cluster.reader
        yield lambda: cluster.fence("unknown-0")
        yield KafkaAppender(settings).start
        yield lambda: ask(settings)

    for call in asked(Settings(kafka=here.as_user("wrong"))):
        with pytest.raises(NotAuthenticated, match="refuses user 'ada'"):
            await call()
    for call in asked(Settings(kafka={"bootstrap.servers": f"127.0.0.1:{closed_port}"})):
        address = rf"no broker answers at 127\.0\.0\.1:{closed_port} \(Connection refused\)"
        with pytest.raises(Unreachable, match=address):
            await call()


async def test_a_broker_that_does_not_answer_is_reported():
    """The machine of a frozen broker still accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = "{}:{}".format(*frozen.getsockname())
        settings = Settings(kafka={"bootstrap.servers": address, "request.timeout.ms": 300})
        with pytest.raises(Unreachable, match=rf"no broker answers at {address} \(no answer within 0\.3 s\)"):
            await KafkaAdmin(settings).topic_names()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_name_that_no_server_resolves_is_reported(protocol):
    """An empty part, or one that is too long: no name server takes it. It may also be one that a broker advertises."""
    for host in ("broker..example", f"{'b' * 64}.example"):
        settings = Settings(kafka={"bootstrap.servers": f"{host}:9092", "security.protocol": protocol})
        with pytest.raises(Unreachable, match=rf"no broker answers at {host}:9092 \('{host}' is not a host name\)"):
            await KafkaCluster(settings).reader()


async def test_a_refused_kerberos_ticket_has_no_user_name_to_correct():
    """What can be wrong is the ticket, or the service's name."""
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    failures = {BrokerAddress("k", 9092): SaslAuthenticationFailed("no")}
    error = NotConnected("no broker answers", failures)
    refused = await refusals.refusal(error, Settings(kafka={"bootstrap.servers": "k:9092", **sasl}))
    assert refused is not None
    assert "kafka.sasl.kerberos.service.name" in refused.hint
    assert "username" not in refused.hint
    assert "user" not in refused.message


class Expired:
    """A library that makes no login."""

    async def step(self, _: bytes | None) -> tuple[bytes, bool]:
        raise LookupError("the ticket has expired")


async def test_an_error_of_the_library_that_makes_the_login_is_a_refusal(here, monkeypatch):
    """As of a Kerberos ticket that was not renewed. The task that asks for the metadata outlives it: when the ticket is
    good again, so are all clients."""
    settings = Settings(kafka=here.as_user(mechanism="PLAIN"))
    shared = Shared(settings)
    await shared.enter()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "SaslPlainAuthenticator", lambda **_: Expired())
        refused = await refusal(settings)
        assert isinstance(refused, NotAuthenticated)
        assert "LookupError: the ticket has expired" in refused.message
        for each in shared._own._held.values():
            each.close()
        async with within(30):
            assert not await shared.refresh()
    async with within(30):
        assert await shared.refresh()
    await shared.leave()


@contextmanager
def dropping(port):
    """A second loopback address whose port answers nothing, as behind a firewall that drops: its queue is full."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((DROPPING, port))
        listener.listen(0)
        for _ in range(6):
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((DROPPING, port))
        yield


def named(monkeypatch, **addresses):
    """Let names have these addresses, in this order."""
    ask = socket.getaddrinfo

    def told(host, port, *more, **given):
        name = host.decode() if isinstance(host, bytes) else host
        if name in addresses:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, int(port))) for each in addresses[name]]
        return ask(host, port, *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", told)


async def test_a_name_whose_first_address_drops_what_is_sent_leads_to_the_next(here, monkeypatch):
    """Without waiting for the request's deadline."""
    port = int(here.open.rpartition(":")[2])
    named(monkeypatch, first=[DROPPING, "127.0.0.1"])
    with dropping(port):
        assert await KafkaCluster(Settings(kafka={"bootstrap.servers": f"first:{port}"})).topic_names() is not None


async def test_another_program_that_hangs_up_is_reported_as_what_it_may_be():
    async def hang_up(client):
        client[1].close()

    async with listening("127.0.0.1", 0, hang_up) as port:
        said = rf"127\.0\.0\.1:{port} \(it closes the connection without an answer: .*max\.connections\.per\.ip"
        with pytest.raises(Unreachable, match=said):
            await KafkaCluster(Settings(kafka={"bootstrap.servers": f"127.0.0.1:{port}"})).topic_names()


async def test_bare_connections_in_vain_are_not_made_again_at_once():
    """A broker that closes them may have too many connections already."""
    made, counts = [], []

    async def hang_up(client):
        made.append(client)
        client[1].close()

    async with listening("127.0.0.1", 0, hang_up) as port:
        cluster = KafkaCluster(Settings(kafka={"bootstrap.servers": f"127.0.0.1:{port}"}))
        for _ in range(3):
            before = len(made)
            with pytest.raises(Unreachable):
                await cluster.reader()
            counts.append(len(made) - before)
    first, second, third = counts
    assert second == third < first


HERE = BrokerAddress("127.0.0.1", 9)
NO_TLS = ssl.SSLError(1, "wrong version number")
NO_TLS.reason = "WRONG_VERSION_NUMBER"


def unreached(cause: BaseException) -> NotConnected:
    error = KafkaConnectionError("no connection")
    error.__cause__ = cause
    return NotConnected("no broker answers", {HERE: error})


@pytest.mark.parametrize(
    ("cause", "is_searched"),
    [
        (socket.gaierror(socket.EAI_NONAME, "no such host"), False),
        (OSError(errno.EHOSTUNREACH, "no route"), False),
        (ConnectionRefusedError(), False),
        (TimeoutError(), False),
        (ConnectionResetError(), True),
        (EOFError(), True),
        (NO_TLS, True),
    ],
    ids=repr,
)
async def test_a_refusal_is_searched_for_where_the_connection_was_closed(monkeypatch, cause, is_searched):
    """A host that has vanished would cost four seconds."""
    searched = []

    async def search(broker: object) -> None:
        searched.append(broker)

    monkeypatch.setattr(refusals._Broker, "_closed", search)
    assert await refusals.refusal(unreached(cause), Settings()) is None
    assert bool(searched) is is_searched


@pytest.mark.parametrize("failure", [AssertionError(), NotImplementedError(), IllegalOperation(), OSError()], ids=repr)
async def test_a_search_that_fails_finds_nothing(monkeypatch, failure):
    """Each of these was seen from the client. The user reads what broke the first connection."""

    async def connect(*_: object) -> None:
        raise failure

    monkeypatch.setattr(connection, "connect", connect)
    for protocol in ("PLAINTEXT", "SSL"):
        given = Settings(kafka={"security.protocol": protocol})
        assert await refusals.refusal(unreached(ConnectionResetError()), given) is None


async def test_a_certificate_that_is_being_replaced_hides_no_outage(monkeypatch):
    def fails(_: object) -> None:
        raise UsageError("the PEM files cannot be loaded", hint="wait")

    monkeypatch.setattr(refusals, "client_arguments", fails)
    assert await refusals.refusal(unreached(ConnectionResetError()), Settings()) is None


async def test_brokers_that_advertise_a_dead_address_are_named(here):
    """The first connection says that all is well; the addresses to which clients go are other ones."""
    with refusing() as port, detour({here.open: port}):
        bootstrap = f"localhost:{here.open.rpartition(':')[2]}"
        with pytest.raises(Unreachable, match=rf"advertised\.listeners\): {re.escape(here.open)}"):
            await KafkaCluster(Settings(kafka={"bootstrap.servers": bootstrap})).topic_ids(["any"])
