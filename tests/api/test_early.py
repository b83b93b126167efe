"""The HTTP process before its application is imported: it answers probes, and holds everything else."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from snapreplay.api import limits, server
from snapreplay.service.config.groups import HttpSettings
from tests.api.test_connections import connected, is_closed
from tests.support.deadlines import scaled, within
from tests.support.early import Gate
from tests.support.fake_control import LIVE, FakeControl
from tests.support.served import program, served, until
from tests.support.waiting import eventually

MODULES_MAX = 300
"""Each takes about half a millisecond."""
FOR_THE_APPLICATION = {"aiokafka", "fastapi", "httpx2", "prometheus_client", "pydantic", "starlette", "typer"}
ANY_PORT = HttpSettings(port=0)
TOLD = ("/healthz", "/readyz")
_AGE = re.compile(r"last answer [0-9.]+ s")


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(tmp_path, monkeypatch)


def client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, trust_env=False, timeout=scaled(30))


def comparable(answer: httpx2.Response) -> tuple[object, ...]:
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
    return answer.status_code, headers, _AGE.sub("", answer.text)


async def test_probes_are_answered_before_the_application_is_imported(gate: Gate) -> None:
    """In the same words as afterwards, and on the same connection. Whatever else comes is answered when it is there."""
    async with served(FakeControl()) as url, client(url) as probing, client(url) as asking:
        early = [comparable(await probing.get(path)) for path in TOLD]
        heads = [(await probing.head(path)).status_code for path in TOLD]
        assert heads == [code for code, *_ in early] == [200, 503]
        await asyncio.to_thread(eventually, lambda: gate.imported, "it begins to import the application")
        paths = ("/api/v1", "/startupz", "/readyz?a=1", "/healthz?a=1")
        held = [asyncio.create_task(asking.get(path)) for path in paths]
        assert [comparable(await probing.get(path)) for path in TOLD] == early
        assert not any(each.done() for each in held)
        gate.open()
        assert [(await each).status_code for each in held] == [200, 200, 503, 200]
        assert [comparable(await probing.get(path)) for path in TOLD] == early


async def test_probes_wait_for_few_modules(gate: Gate) -> None:
    """Whatever `serving` imports delays the first answer of each process."""
    async with served(FakeControl()):
        await asyncio.to_thread(eventually, lambda: gate.imported, "it begins to import the application")
        gate.open()
    assert not FOR_THE_APPLICATION & {name.partition(".")[0] for name in gate.imported}
    ours = {".".join(name.split(".")[:2]) for name in gate.imported if name.startswith("snapreplay.")}
    assert ours == {"snapreplay.api", "snapreplay.counted", "snapreplay.errors", "snapreplay.service"}
    assert len(gate.imported) <= MODULES_MAX


async def test_a_quick_restore_goes_first(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application is not imported before the partitions are LIVE, or the restore is not quick."""
    monkeypatch.setattr(server, "LOAD_AFTER_SECONDS", 3600.0)
    control = FakeControl()
    async with served(control) as url, client(url) as probing:
        for _ in range(20):
            assert (await probing.get("/readyz")).status_code == 503
        assert not gate.imported
        control.statuses = {0: LIVE}
        await asyncio.to_thread(eventually, lambda: gate.imported, "it begins to import the application")
        gate.open()


async def test_before_there_is_a_service_it_lives_and_is_not_ready() -> None:
    """A program may start HTTP beside what it does before. Reads of the log come through afterwards, too."""
    control, http = FakeControl([LIVE]), server.HttpServer()
    http.begin(ANY_PORT)
    async with client(http.bind(ANY_PORT).url) as asking:
        assert (await asking.get("/healthz")).status_code == 200
        told = await asking.get("/readyz")
        assert (told.status_code, told.json()["checks"][1]["name"]) == (503, "member")
        held = asyncio.create_task(asking.get("/api/v1/partitions/0/history"))
        assert (await asking.get("/healthz")).status_code == 200
        assert not held.done()
        await http.serve(control, ANY_PORT)
        assert (await held).status_code == 200
        assert (await asking.get("/readyz")).status_code == 200
    await http.close()


async def test_http_that_has_begun_ends_without_a_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It hears the end, so that nobody has to kill it, and does not wait for what it holds. Its port is free."""
    monkeypatch.setattr(server, "END_SECONDS", 3600.0)
    http = server.HttpServer()
    http.begin(ANY_PORT)
    address = http.bind(ANY_PORT)
    async with client(address.url) as asking:
        held = [asyncio.create_task(asking.get(path)) for path in ("/api/v1", "/healthz?a=1")]
        assert (await asking.get("/healthz")).status_code == 200
        async with within(30):
            await http.close(3600.0)
        answers = await asyncio.gather(*held, return_exceptions=True)
    assert all(isinstance(each, httpx2.TransportError) for each in answers)
    assert [each for each in caplog.records if each.name.startswith("snapreplay")] == []
    socket.create_server(address).close()


def test_a_service_that_freezes_before_is_seen(gate: Gate) -> None:
    """It is not ready, by the age of its last answer, as at any other time."""
    assert gate is not None
    with program("frozen") as service:
        assert httpx2.get(f"{service.url}/healthz", trust_env=False).status_code == 200
        service.send(signal.SIGSTOP)
        url = f"{service.url}/readyz"

        def checks() -> dict[str, bool]:
            answer = httpx2.get(url, trust_env=False, timeout=scaled(30))
            return {each["name"]: each["ok"] for each in answer.json()["checks"]}

        eventually(lambda: not checks()["service process"], "not ready")
        service.send(signal.SIGCONT)
        eventually(lambda: checks()["service process"], "the service answers again")


async def test_what_waits_for_the_application_is_bounded(gate: Gate) -> None:
    """By the limits of all connections: the oldest of too many is closed, and no probe waits. What is no HTTP is
    refused at once."""
    asked = b"GET /api/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(FakeControl()) as url, client(url) as probing:
        with ExitStack() as stack:
            crowd = [stack.enter_context(connected(url)) for _ in range(limits.CONNECTIONS_MAX + 50)]
            for each in crowd:
                each.setblocking(False)
                await _sent(each, asked)
            assert (await probing.get("/healthz")).status_code == 200
            with connected(url) as garbled:
                garbled.sendall(b"no HTTP\r\n\r\n")
                answer = await asyncio.to_thread(garbled.recv, 65536)
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"application/problem+json" in answer
            await asyncio.to_thread(
                eventually, lambda: sum(is_closed(each) for each in crowd) >= 50, "the oldest are closed"
            )
            gate.open()
            await until(lambda: _answers(probing), "the application answers")


async def _sent(client: socket.socket, asked: bytes) -> None:
    try:
        client.send(asked)
    except OSError:  # it is closed already, because others came
        return


async def _answers(asking: httpx2.AsyncClient) -> bool:
    return (await asking.get("/api/v1")).status_code == 200
