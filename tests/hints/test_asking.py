"""Hints of the HTTP API and of options: the request or the option that is named, made."""

import asyncio
import re
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from snapreplay.api import server
from snapreplay.api.app import create_app
from snapreplay.api.cli import client, options, spark_commands
from snapreplay.api.cli.root import app as commands
from snapreplay.api.events import StatusEvents
from snapreplay.api.guard import Hosts, allowed_hosts
from snapreplay.api.limits import connections_max
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import load_settings
from snapreplay.service.control.state_reads import NotRead, NotReadable, ReadLate, StateAnswer, StateRead
from snapreplay.snapshots.proof.proven import Level
from tests.api.conftest import control, served, url
from tests.api.test_owners import both, http_of_two
from tests.support.fake_control import FAILED, LIVE, LOADING, NOW, FakeControl, Local
from tests.support.served import peer

__all__ = ["both", "control", "http_of_two", "served", "url"]

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def http() -> TestClient:
    return TestClient(create_app(Local(FakeControl()), now=lambda: NOW), raise_server_exceptions=False)


def ask(http: TestClient, hint: str) -> int:
    """The status of the request that a hint names."""
    (path,) = re.findall(r"GET (/\S+?)(?:[;, ]|$)", hint)
    return http.get(path).status_code


PAUSE = "/api/v1/partitions/0/pause"
WRONG_REQUESTS: dict[str, Callable[[TestClient], Any]] = {
    "an unknown operation": lambda http: http.get("/api/v1/operations/none"),
    "no such path": lambda http: http.get("/nothing"),
    "a partition of another process": lambda http: http.post("/trigger-snapshot", json={"partitions": [3]}),
    "an unknown savepoint": lambda http: http.get("/api/v1/savepoints/none"),
    "an unknown process": lambda http: http.post("/api/v1/processes/none/drain"),
    "a running snapshot": lambda http: [http.post("/trigger-snapshot", json={"partitions": [0]}) for _ in range(2)][1],
    "no live partition": lambda _: TestClient(create_app(Local(FakeControl((LOADING, FAILED))), now=lambda: NOW)).post(
        "/trigger-snapshot"
    ),
    "what goes on": lambda http: http.delete(f"/api/v1/operations/{http.post(PAUSE).json()['id']}"),
}


@pytest.mark.parametrize("name", WRONG_REQUESTS)
def test_the_request_that_is_named_is_answered(http, name):
    """What exists, which operations there are, what this process has."""
    answer = WRONG_REQUESTS[name](http)
    assert answer.is_error
    assert ask(http, answer.json()["hint"]) == 200


def test_without_a_stream_the_status_is_asked_for():
    """Each answer is over at once, so it needs no place for long."""
    events = StatusEvents()
    events.readers = connections_max()
    http = TestClient(create_app(Local(FakeControl()), events=events, now=lambda: NOW))
    refused = http.get("/api/v1/events")
    assert refused.status_code == 503
    assert ask(http, refused.json()["hint"]) == 200


def test_of_an_owner_that_cannot_be_asked_the_processes_tell():
    """Partition 4 is in a process without an address."""
    control = FakeControl()
    control.peers = (peer("p2", "", 4),)
    http = TestClient(create_app(Local(control), now=lambda: NOW))
    refused = http.post("/api/v1/partitions/4/retry")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    (path,) = re.findall(r"GET (/\S+)", refused.json()["hint"])
    assert [each["state"] for each in http.get(path).json()["items"]] == ["self", "no_address"]


async def test_of_what_was_begun_in_part_the_operation_tells(both):
    """Its other process has refused."""
    await both.ask_two.post("/trigger-snapshot?scope=local")
    refused = await both.ask.post("/trigger-snapshot", json={"partitions": [0, 4]})
    (path,) = re.findall(r"GET (/\S+)", refused.json()["hint"])
    assert [part["partition"] for part in (await both.ask.get(path)).json()["parts"]] == [0]


def test_before_any_broker_has_answered_readiness_says_what_is_met():
    """503 names the request; that one answers check by check."""
    control = FakeControl(())
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    http = TestClient(create_app(Local(control), now=lambda: NOW))
    refused = http.post("/trigger-snapshot")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    (path,) = re.findall(r"GET (/\S+)", refused.json()["hint"])
    assert "checks" in http.get(path).json()


def test_a_foreign_name_is_allowed_by_the_setting():
    """The value of the hint lets the same request through; so does the same request without an Origin."""
    foreign = {"Host": "ledger.example.com:8080", "Origin": "http://ledger.example.com:8080"}
    http = TestClient(create_app(Local(FakeControl()), now=lambda: NOW))
    refused = http.post("/trigger-snapshot", headers=foreign)
    (name,) = re.findall(r"http\.allowed_hosts=(\S+)", refused.json()["hint"])
    hosts = Hosts("127.0.0.1", allowed_hosts(name))
    http = TestClient(create_app(Local(FakeControl()), hosts, now=lambda: NOW))
    assert http.post("/trigger-snapshot", headers=foreign).status_code == 202
    page = http.post("/trigger-snapshot", headers={"Origin": "https://elsewhere.example"})
    assert "curl" in page.json()["hint"]
    assert http.post("/api/v1/partitions/2/retry").status_code == 202


def test_a_body_is_sent_as_json(http):
    """The header of the hint, and the same body is taken."""
    body = b'{"partitions": [0]}'
    refused = http.post("/trigger-snapshot", content=body, headers={"Content-Type": "text/plain"})
    assert refused.status_code == 415
    (header,) = re.findall(r"-H '([^']+)'", refused.json()["hint"])
    name, value = header.split(": ")
    assert http.post("/trigger-snapshot", content=body, headers={name: value}).status_code == 202


OPTIONS: dict[str, tuple[Callable[[], Any], str, Callable[[str], Any]]] = {
    "a setting": (
        lambda: options.settings_from(None, ["http.port"]), r"--set ([^\s`]+)",
        lambda given: options.settings_from(None, [given]),
    ),
    "a URL": (
        lambda: options.service_url("localhost", None, None), r"--url ([^\s`]+)",
        lambda given: options.service_url(given, None, None),
    ),
    "an app or an app id": (
        lambda: options.app_id_of("audit", None, None), r"audit --app-id ([^\s`]+)",
        lambda given: options.app_id_of("audit", None, given),
    ),
    "the app for a replay": (
        lambda: spark_commands.audited_app(None, "ledger", Level.REPLAY), r"audit module:app --level (\w+)",
        lambda given: spark_commands.audited_app("examples.ledger:app", None, Level(given)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_the_option_that_is_named_is_taken(name):
    """Refused with an example; the example itself is taken."""
    wrong, given, right = OPTIONS[name]
    with pytest.raises(SnapreplayError) as refused:
        wrong()
    (value,) = re.findall(given, refused.value.hint)
    right(value)


def test_another_port_is_taken():
    """`--http-port 0` picks one that is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SnapreplayError, match=f"port {port} on 127.0.0.1 is taken") as refused:
            server.bind("127.0.0.1", port)
        assert "--http-port N (0 picks a free one)" in refused.value.hint
        server.bind("127.0.0.1", 0).close()


async def test_another_port_for_probes_is_taken():
    """`--set http.probes_port=N`, as it is printed; with 0 there is none."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_ports(1)[0]
        http = server.HttpServer()
        with pytest.raises(SnapreplayError, match=f"port {port} on 127.0.0.1 is taken") as refused:
            http.bind(load_settings({"http.port": 0, "http.probes_port": port}).http)
        (name,) = re.findall(r"--set (\S+)=N \(0: none\)", refused.value.hint)
        for number in (free, 0):
            http.bind(load_settings({"http.port": 0, name: number}).http)
            await http.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "::1", "localhost"])  # noqa: S104 - that is the case
async def test_what_others_reach_asks_for_a_login(host, tmp_path, monkeypatch):
    """The loopback address does not. Each of the three remedies is carried out, as it is printed."""
    monkeypatch.chdir(tmp_path)

    async def serve(*given: str) -> None:
        settings = load_settings({"http.host": host, "http.port": 0, **dict(each.split("=") for each in given)})
        http = server.HttpServer()
        http.bind(settings.http)
        await http.close()

    if host not in ("0.0.0.0", "::"):  # noqa: S104 - that is the case
        await serve()
        return
    with pytest.raises(SnapreplayError, match=re.escape(f"http.host={host} ")) as refused:
        await serve()
    (command,) = re.findall(r"`(openssl .*?)`", refused.value.hint)
    await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", command], check=True)
    remedies = re.findall(r"`--set (\S+?)`", refused.value.hint)
    assert len(remedies) == 3
    for remedy in remedies:
        await serve(remedy)


def test_a_service_is_asked_where_it_is(url):
    """Nobody answers: with `--url` of one that does, it is answered."""
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    with client.Client(nowhere) as asking, pytest.raises(SnapreplayError) as refused:
        asking.restore_status()
    assert "say where it is with --http-port or --url" in refused.value.hint
    with client.Client(url.replace("http:", "https:")) as asking, pytest.raises(SnapreplayError) as refused:
        asking.restore_status()
    assert f"`--url {url}`" in refused.value.hint
    with (
        client.Client(f"{url}/restore-status") as asking,
        pytest.raises(SnapreplayError, match="knows no /restore-status behind this address") as refused,
    ):
        asking.restore_status()
    (named,) = re.findall(r"`--url (\S+)`", refused.value.hint)
    with client.Client(named) as asking:
        assert asking.restore_status()["partitions"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_of_a_service_that_does_not_answer_health_tells(control, url, method):
    """It is not said to be absent. Of what it was to do it is said that nobody knows whether it is done."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        with client.Client(address) as asking, pytest.raises(SnapreplayError, match="has not answered") as refused:
            asking._ask(method, "/trigger-snapshot", "parts", timeout_s=0.1)
    named = re.findall(r"`snapreplay (.+?)`", refused.value.hint)
    assert len(named) == 1 + (method == "POST")
    assert ("whether it was done is not known" in str(refused.value)) == (method == "POST")
    for words in named:
        answer = CliRunner().invoke(commands, words.replace(address, url).split(), prog_name="snapreplay")
        assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("wrong", [["health", "--nonsense"], ["retry"], ["resume"]])
def test_the_command_that_is_named_answers(monkeypatch, control, url, wrong):
    """`health` as it is written, and what partitions do where none failed, or none is paused."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", url.rpartition(":")[2])
    control.statuses = {0: LIVE}

    def typed(words):
        return CliRunner().invoke(commands, words, prog_name="snapreplay")

    refused = typed(wrong)
    assert refused.exit_code == 1
    (named,) = re.findall(r"hint: (?:see )?`(snapreplay [a-z -]+)`", refused.stderr)
    answer = typed(named.split()[1:])
    assert answer.exit_code == 0, answer.output


REFUSED_READS: dict[str, tuple[StateAnswer | SnapreplayError, str]] = {
    "being restored": (NotReadable(1, "loading", "it is loading"), "GET /restore-status"),
    "of another process": (NotReadable(5, None, "another process owns it"), "GET /restore-status?scope=app"),
    "not known": (StateAnswer((), (NotRead(1, "loading", "it is loading"),), 1), "GET /restore-status"),
    "late": (ReadLate(2.0), "GET /healthz"),
}


@pytest.mark.parametrize("name", REFUSED_READS)
def test_of_what_cannot_be_read_the_path_that_is_named_tells(name):
    """What the partition does, who owns it, whether the process is frozen. The other hints are facts."""
    outcome, named = REFUSED_READS[name]
    control = FakeControl()

    def read(wanted: StateRead) -> StateAnswer:
        if isinstance(outcome, SnapreplayError):
            raise outcome
        return outcome

    control.reading = read
    source = Local(control)
    http = TestClient(create_app(source, now=lambda: NOW))
    hint = http.get("/api/v1/state/default/ada").json()["hint"]
    assert named in hint
    assert ask(http, hint) == 200


def test_a_key_of_bytes_is_given_in_base64(control, url):
    """A command line of bytes that are no text is refused; their base64 is read."""
    control.reading = lambda read: StateAnswer((), (), 0)
    with client.Client(url) as asking:
        with pytest.raises(SnapreplayError, match="not UTF-8") as refused:
            asking.state_key("default", "\udcff")
        assert "base64" in refused.value.hint
        with pytest.raises(SnapreplayError, match="the key is not in the store"):
            asking.state_key("default", "/w==")
    assert [each.key for each in control.reads] == ["/w=="]
