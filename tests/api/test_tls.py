"""TLS: certificates that are renewed, processes and commands that follow https, certificates of clients, and handshakes
that do not end."""

import asyncio
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from shutil import copy, rmtree
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app as commands
from snapreplay.api.credentials import TlsFiles
from snapreplay.api.peer_client import Caller
from snapreplay.api.peers import PeerFollower
from snapreplay.api.server import HttpServer
from snapreplay.api.serving import EXCHANGE_SECONDS, connections_max
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import control_of, peer, served, until


class Authority:
    """An authority and the certificates that it signs, by openssl."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.signed = cache(self._signed)
        self.file = self._made("ca", "-addext", "keyUsage=critical,keyCertSign")

    def _signed(self, name: str) -> tuple[str, str]:
        """Make a certificate for 127.0.0.1, or for a client of that name; return its file and that of its key."""
        ca = ("-CA", self.file, "-CAkey", self.file.replace(".crt", ".key"))
        made = self._made(name, *ca, "-addext", "basicConstraints=CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1")
        return made, made.replace(".crt", ".key")

    def _made(self, name: str, *options: str) -> str:
        file = self._folder / f"{self._name}-{name}.crt"
        words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
        words += ["-subj", f"/CN={name}", *options]
        key = ("-keyout", str(file.with_suffix(".key")), "-out", str(file))
        subprocess.run(["openssl", *words, *key], check=True, capture_output=True)
        return str(file)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "theirs")


@pytest.fixture
def settings(ours: Authority, tmp_path: Path) -> HttpSettings:
    """Settings with copies that a test may change."""
    for source, name in zip((*ours.signed("server"), ours.file), ("server.crt", "server.key", "ca.crt"), strict=True):
        copy(source, tmp_path / name)
    return HttpSettings(
        port=0,
        tls_certificate_file=str(tmp_path / "server.crt"),
        tls_key_file=str(tmp_path / "server.key"),
        tls_ca_file=str(tmp_path / "ca.crt"),
    )


def client(url: str, authority: Authority, own: tuple[str, str] | None = None) -> httpx2.AsyncClient:
    context = ssl.create_default_context(cafile=authority.file)
    if own:
        context.load_cert_chain(*own)
    return httpx2.AsyncClient(base_url=url, verify=context, trust_env=False)


async def test_a_renewed_certificate_counts_without_a_restart(settings, ours, theirs):
    """Half of it changes nothing. Who trusts another authority is not answered before it has signed."""
    async with served(FakeControl(), settings) as url:
        assert url.startswith("https://127.0.0.1:")
        async with client(url, ours) as asking:
            assert (await asking.get("/healthz")).status_code == 200
        certificate, key = theirs.signed("server")
        copy(certificate, settings.tls_certificate_file)
        async with client(url, ours) as asking:
            assert (await asking.get("/healthz")).status_code == 200
        async with client(url, theirs) as asking:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await asking.get("/healthz")
        copy(key, settings.tls_key_file)
        async with client(url, theirs) as asking:
            assert (await asking.get("/healthz")).status_code == 200


async def test_the_files_of_a_secret_are_renewed_as_kubernetes_does_it(settings, ours, theirs, tmp_path):
    """By another target of a link. The former one is removed."""
    for name, signed, token in (("one", ours.signed("server"), "1" * 16), ("two", theirs.signed("server"), "2" * 16)):
        (tmp_path / name).mkdir()
        for source, file in zip(signed, ("server.crt", "server.key"), strict=True):
            copy(source, tmp_path / name / file)
        (tmp_path / name / "token").write_text(token)
    linked = tmp_path / "..data"
    linked.symlink_to("one")
    certificate, key, token_file = (str(linked / file) for file in ("server.crt", "server.key", "token"))
    secret = HttpSettings(port=0, tls_certificate_file=certificate, tls_key_file=key, token_file=token_file)
    async with served(FakeControl(), secret) as url:
        for authority, token in ((ours, "1" * 16), (theirs, "2" * 16)):
            async with client(url, authority) as asking:
                answer = await asking.get("/restore-status", headers={"Authorization": f"Bearer {token}"})
                assert answer.status_code == 200
            (tmp_path / "new").symlink_to("two")
            (tmp_path / "new").rename(linked)
            rmtree(tmp_path / "one", ignore_errors=True)


async def test_with_an_authority_for_clients_only_probes_go_without_a_certificate(settings, ours, theirs):
    """One of another authority does not get as far as a request."""
    async with served(FakeControl(), settings.replaced(client_ca_file=settings.tls_ca_file)) as url:
        async with client(url, ours) as anonymous:
            assert (await anonymous.get("/healthz")).status_code == 200
            refused = await anonymous.get("/restore-status")
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:snapreplay:problem:no-certificate")
        async with client(url, ours, ours.signed("ada")) as known:
            assert (await known.get("/restore-status")).status_code == 200
        async with client(url, ours, theirs.signed("eve")) as other:
            with pytest.raises(httpx2.HTTPError):
                await other.get("/restore-status")


async def test_an_authority_of_clients_that_was_taken_out_counts_no_more(settings, ours, theirs, tmp_path):
    """Neither for a session that its client resumes."""
    authority = tmp_path / "clients.crt"
    copy(ours.file, authority)
    context = ssl.create_default_context(cafile=ours.file)
    context.load_cert_chain(*ours.signed("ada"))
    async with served(FakeControl(), settings.replaced(client_ca_file=str(authority))) as url:
        where = ("127.0.0.1", int(url.rpartition(":")[2]))

        def ask(session: ssl.SSLSession | None) -> tuple[bytes, bool, ssl.SSLSession | None]:
            """Ask with or without a session; no bytes: the connection was closed without an answer."""
            with (
                socket.create_connection(where, timeout=scaled(10)) as connection,
                context.wrap_socket(connection, server_hostname=where[0], session=session) as tls,
            ):
                try:
                    tls.sendall(b"HEAD /restore-status HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    answer = tls.recv(12)
                except OSError:
                    answer = b""
                return answer, bool(tls.session_reused), tls.session

        answer, _, session = await asyncio.to_thread(ask, None)
        assert answer == b"HTTP/1.1 200"
        answer, is_resumed, session = await asyncio.to_thread(ask, session)
        assert (answer, is_resumed) == (b"HTTP/1.1 200", True)
        copy(theirs.file, authority)
        for each in (session, None):
            assert (await asyncio.to_thread(ask, each))[:2] == (b"", False)


async def test_processes_follow_each_other_and_show_their_certificates(settings, theirs):
    """A peer whose certificate is not trusted is named."""
    mutual = settings.replaced(client_ca_file=settings.tls_ca_file, suspect_after_ms=600_000)
    certificate, key = theirs.signed("server")
    foreign = mutual.replaced(tls_certificate_file=certificate, tls_key_file=key)
    one = control_of("p1")
    context = ssl.create_default_context(cafile=settings.tls_ca_file)
    context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    async with (
        served(control_of("p2"), mutual) as same,
        served(control_of("p3"), foreign) as differs,
        served(one, mutual) as url,
        httpx2.AsyncClient(base_url=url, verify=context, trust_env=False) as asking,
    ):
        one.peers = (peer("p2", same), peer("p3", differs))

        rows: list[dict[str, Any]] = []

        async def both_are_judged() -> bool:
            rows[:] = (await asking.get("/api/v1/processes")).json()["items"][1:]
            is_reported = "CERTIFICATE_VERIFY_FAILED" in (rows[1]["last_error"] or "")
            return rows[0]["state"] == "reachable" and (is_reported or rows[1]["state"] == "reachable")

        await until(both_are_judged, "one is followed, the other one named")
        assert rows[1]["state"] == "unreachable"
    assert one.suspected == []


async def test_no_token_is_sent_without_tls_by_a_process_that_has_it(settings, ours, tmp_path):
    """Any member of the group may advertise such an address. It is named."""
    heard = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    (tmp_path / "token").write_text("1" * 16)
    one = control_of("p1")
    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with (
        server,
        served(one, settings.replaced(token_file=str(tmp_path / "token"))) as url,
        client(url, ours) as asking,
    ):
        one.peers = (peer("p2", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"),)

        async def is_named() -> bool:
            answer = await asking.get("/api/v1/processes", headers={"Authorization": f"Bearer {'1' * 16}"})
            (row,) = answer.json()["items"][1:]
            return "has no TLS" in row["last_error"] or bool(heard)

        await until(is_named, "why it is not asked")
    assert not heard


async def test_a_peer_whose_certificate_is_trusted_no_more_is_never_suspected(settings, theirs):
    """However long that lasts: somebody answers there."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*theirs.signed("server"))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await is_never_suspected(url, Caller(context=TlsFiles.of(settings).client()), "CERTIFICATE_VERIFY_FAILED")


async def test_a_peer_that_trusts_our_certificate_no_more_is_never_suspected(settings, theirs):
    """It hangs up after the handshake, and says nothing."""
    caller = Caller(context=TlsFiles.of(settings).client(), has_certificate=True)
    async with served(control_of("p2"), settings.replaced(client_ca_file=theirs.file)) as url:
        await is_never_suspected(url, caller, "does not trust the certificate of this process")


async def is_never_suspected(url: str, caller: Caller, why: str) -> None:
    """Follow a peer that was heard before until it is named as one that cannot be asked."""
    follower = PeerFollower(control_of("p1").document(), peer("p2", url), 600.0, lambda *_: None)
    follower.life.answered(time.monotonic(), 0.0)
    following = asyncio.create_task(follower.run(caller))

    async def has_failed() -> bool:
        return bool(follower.known.error)

    await until(has_failed, "it cannot be asked")
    following.cancel()
    assert why in follower.known.error
    assert follower.life.due(time.monotonic() + 1000) is None


async def test_commands_trust_the_authority_of_the_settings(settings, monkeypatch, tmp_path):
    """Each refusal names what to give; the printed URL is asked then."""
    monkeypatch.chdir(tmp_path)
    async with served(FakeControl(), settings) as url:

        def run(asked: str) -> Any:
            return CliRunner().invoke(commands, ["health", "--url", asked])

        assert "http.tls_ca_file" in (await asyncio.to_thread(run, url)).stderr
        plain = await asyncio.to_thread(run, url.replace("https", "http"))
        assert f"`--url {url}`" in plain.stderr
        (tmp_path / "snapreplay.toml").write_text('[http]\ntls_ca_file = "ca.crt"\n')
        answer = await asyncio.to_thread(run, url)
        assert answer.exit_code == 0, answer.output


async def test_clients_that_begin_a_handshake_only_are_bounded(settings, ours):
    """They neither keep others from being answered nor files open: the oldest make room."""
    async with served(FakeControl(), settings) as url:
        address, too_many = ("127.0.0.1", int(url.rpartition(":")[2])), connections_max() + 20
        closed: list[bool] = []
        is_late = True
        while is_late:  # those that stay would be closed for their age by now
            began = time.monotonic()
            with ExitStack() as opened:
                idle = [opened.enter_context(socket.create_connection(address)) for _ in range(too_many)]
                async with client(url, ours) as asking:
                    for _ in range(3):
                        assert (await asking.get("/healthz")).status_code == 200
                    for each in idle:
                        each.setblocking(False)
                    closed = [_is_closed(each) for each in idle]
                is_late = time.monotonic() - began > EXCHANGE_SECONDS / 2
        assert all(closed[:20])
        assert not any(closed[40:])


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("server.crt", None, "http.tls_certificate_file=.*: cannot be read: No such file"),
        ("server.crt", "hunter2", "http.tls_certificate_file=.*: not a PEM certificate with an unencrypted key"),
        ("server.key", "hunter2", "http.tls_key_file=.*: not a PEM certificate with an unencrypted key"),
        ("server.key", "encrypted", "unencrypted"),
        ("ca.crt", "hunter2", "http.tls_ca_file=.*: not PEM certificates"),
        ("ca.crt", None, "http.tls_ca_file=.*: cannot be read: No such file"),
    ],
)
async def test_files_of_no_use_are_refused_at_the_start(settings, tmp_path, name, content, why):
    """By their names, without what they hold; there is no prompt for a password. The good ones are taken."""
    file = tmp_path / name
    good = file.read_bytes()
    if content is None:
        file.unlink()
    elif content == "encrypted":
        words = ["openssl", "pkey", "-in", str(file), "-aes256", "-passout", "pass:hunter2"]
        file.write_bytes(await asyncio.to_thread(subprocess.check_output, words))
    else:
        file.write_text(content)
    with pytest.raises(UsageError, match=why) as refused:
        HttpServer().bind(settings)
    assert "hunter2" not in str(refused.value)
    assert "PEM files that this process may read" in refused.value.hint
    file.write_bytes(good)
    http = HttpServer()
    http.bind(settings)
    await http.close()
