"""HTTP on a real port, and the HTTP process and the service, each killed and frozen."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator, Set
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psutil
import pytest

from snapreplay import running
from snapreplay.api import server as module
from snapreplay.api.server import HttpServer
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.address import Address
from snapreplay.service.control.protocol import Adopt
from snapreplay.service.control.status import PartitionError
from tests.api.test_connections import HALF, PIPELINED, SLOW_BODY, connected
from tests.support import apps
from tests.support.deadlines import is_running, scaled, within
from tests.support.fake_control import LIVE, NOW, FakeControl
from tests.support.served import http_processes
from tests.support.stage import settings_for
from tests.support.waiting import eventually

ANY_PORT = HttpSettings(port=0)
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROGRAM = """
    import asyncio, multiprocessing, sys, time

    from snapreplay.api.server import HttpServer
    from snapreplay.service.config.groups import HttpSettings
    from tests.support.fake_control import LIVE, NOW, FakeControl

    async def main():
        server = HttpServer()
        address = await server.serve(FakeControl(), HttpSettings(port=0))
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
        worker.start()
        print(address.port, worker.pid, flush=True)
        await asyncio.sleep(300)

    asyncio.run(main())
"""


@pytest.fixture
def program() -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A process that serves HTTP and has forked a worker, as a pool in a handler does; its port, the worker's pid."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port, worker = map(int, process.stdout.readline().split())
        yield process, port, worker
        process.kill()
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """(status code, body); (0, {}) without an answer."""
    try:
        response = httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=scaled(10), trust_env=False)
    except httpx2.TransportError:
        return 0, {}
    return response.status_code, response.json()


def http_process(of: int, others: Set[psutil.Process] = frozenset()) -> psutil.Process:
    """`others`: of earlier tests in this process, which may end a moment later."""
    (child,) = http_processes(of) - others
    return child


@asynccontextmanager
async def served(control: FakeControl | None = None) -> AsyncIterator[Address]:
    """A control in this process, with HTTP."""
    server = HttpServer()
    address = await server.serve(control or FakeControl(), ANY_PORT)
    try:
        yield address
    finally:
        await server.close()


async def test_serves_on_a_free_port_and_closes():
    """Port 0 gives a real port that answers at once, and is free again after close, which may be repeated. No signal
    handler is installed: the service decides what SIGTERM means."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    server = HttpServer()
    await server.close()
    address = await server.serve(FakeControl(), ANY_PORT)
    assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert address.port > 0
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        assert (await client.get("/healthz")).status_code == 200
    await server.close()
    await server.close()
    with socket.create_server(("127.0.0.1", address.port)):
        pass


async def test_answers_do_not_wait_for_an_acknowledgement():
    """Headers and body are two writes: without TCP_NODELAY the second one waits for 40 ms."""
    async with served() as address, httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        await client.get("/healthz")
        seconds = 1.0
        async with within(30):
            while seconds > 0.03:  # on a busy machine not each is as quick
                began = time.monotonic()
                await client.get("/healthz")
                seconds = time.monotonic() - began


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_impossible_address_is_refused(host):
    """An address that is not of this machine is a usage error, not an OSError."""
    with pytest.raises(UsageError, match="HTTP cannot be served"):
        await HttpServer().serve(FakeControl(), HttpSettings(host=host, port=0))


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [("frozen", True, "frozen"), ("executable", "", "sys.executable"), ("executable", None, "sys.executable")],
)
async def test_a_program_without_an_interpreter_is_refused_by_name(monkeypatch, name, value, cause):
    """Its executable is the program itself, which would start once more, with the same group and the same names."""
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(UsageError, match=cause) as refused:
        await HttpServer().serve(FakeControl(), ANY_PORT)
    assert "http=None" in refused.value.hint
    async with running(apps.ledger("frozen"), settings_for("127.0.0.1:1"), None) as service:
        assert service.http_address is None


def test_a_killed_service_leaves_neither_process_nor_port(program, monkeypatch):
    """Although a worker that it has forked lives on with copies of its files. While both live, HTTP goes behind the
    service, in its session, too, whose weight the kernel takes."""
    process, port, worker = program
    http = http_process(process.pid)
    assert get(port, "/api/v1")[0] == 200
    session = Path(f"/proc/{http.pid}/autogroup")
    behind = http.nice() - psutil.Process(process.pid).nice()
    assert (behind, session.read_text().split()[-1] if session.exists() and os.geteuid() == 0 else "5") == (5, "5")
    process.kill()
    monkeypatch.setattr(module, "PATIENCE_SECONDS", scaled(30))  # the HTTP process goes behind all others
    module.bind("127.0.0.1", port).close()  # by a service that is started at once
    eventually(lambda: not is_running(http.pid), "the HTTP process ends with the service")
    assert is_running(worker)


def test_a_port_that_becomes_free_in_a_moment_is_taken(monkeypatch):
    """The HTTP process of a killed service ends a moment later. One that stays taken is refused."""
    with socket.create_server(("127.0.0.1", 0)) as former, monkeypatch.context() as patched:
        patched.setattr(module, "PATIENCE_SECONDS", scaled(30))
        host, port = former.getsockname()
        freed = threading.Timer(0.2, former.close)
        freed.start()
        module.bind(host, port).close()
        freed.join()
    with socket.create_server((host, port)), pytest.raises(UsageError, match=f"port {port} on {host} is taken"):
        module.bind(host, port)


def test_a_frozen_service_is_seen(program):
    """Not ready, then not healthy, and nothing old is shown as if it were true. Thawed, it answers as before."""
    process, port, _ = program
    assert (get(port, "/healthz")[0], get(port, "/restore-status")[0]) == (200, 200)
    os.kill(process.pid, signal.SIGSTOP)
    asked = httpx2.post(f"http://127.0.0.1:{port}/trigger-snapshot", timeout=scaled(10), trust_env=False)
    assert (asked.status_code, "it may still do what it was asked for" in asked.json()["detail"]) == (503, True)
    eventually(lambda: get(port, "/readyz")[0] == 503, "not ready")
    eventually(lambda: get(port, "/restore-status")[0] == 503, "nothing old is shown")
    status, body = get(port, "/restore-status")
    assert (status, str(body["type"]).rpartition(":")[2]) == (503, "service-silent")
    eventually(lambda: get(port, "/healthz")[0] == 503, "not healthy")
    checks = {each["name"]: each for each in get(port, "/healthz")[1]["checks"]}
    assert not checks["service process"]["ok"]
    os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: get(port, "/healthz")[0] == 200, "healthy")
    eventually(lambda: get(port, "/restore-status")[0] == 200, "what is true is shown again")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_dead_http_process_is_replaced(end, monkeypatch, caplog):
    """Killed, or frozen: told, and another one answers on the same port. Signals for all processes of a terminal do
    nothing to it."""
    # One that starts says nothing either: on a busy machine for longer.
    monkeypatch.setattr(module, "SILENT_SECONDS", scaled(5) if end == signal.SIGSTOP else 3600)
    monkeypatch.setattr(module, "END_SECONDS", 0.1)
    others = http_processes(os.getpid())
    async with served() as address:
        first = http_process(os.getpid(), others)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            os.kill(first.pid, number)
        assert (await asyncio.to_thread(get, address.port, "/healthz"))[0] == 200
        os.kill(first.pid, end)
        await asyncio.to_thread(eventually, lambda: not is_running(first.pid), "it is gone")
        await asyncio.to_thread(eventually, lambda: get(address.port, "/healthz")[0] == 200, "served")
        assert "the HTTP process has ended, the next one starts in" in caplog.text
    assert http_processes(os.getpid()) <= others


async def test_connections_wait_until_there_is_another_http_process(monkeypatch):
    """Refused, they would say that the whole service is dead. At the end the port is free."""
    monkeypatch.setattr(module, "PAUSE_SECONDS_MIN", 3600.0)
    others = http_processes(os.getpid())
    async with served() as address:
        first = http_process(os.getpid(), others)
        first.kill()
        await asyncio.to_thread(eventually, lambda: not is_running(first.pid), "it listens no more")

        def accepted() -> bool:
            with suppress(ConnectionRefusedError):
                socket.create_connection(address).close()
                return True
            return False

        await asyncio.to_thread(eventually, accepted, "a connection is accepted")
        assert not http_processes(os.getpid()) - others
    socket.create_server(address).close()


async def test_half_a_character_in_an_error_is_shown_with_an_escape():
    """An app's error may quote whatever it read; the process stays alive for its probes."""
    broken = PartitionError("RecordError", "unknown \ud800", "", "stop", "", NOW)
    async with served(FakeControl([msgspec.structs.replace(LIVE, error=broken)])) as address:
        assert (await asyncio.to_thread(get, address.port, "/healthz"))[0] == 200
        _, shown = await asyncio.to_thread(get, address.port, "/api/v1/partitions/0")
        assert shown["error"]["message"] == "unknown \\ud800"
        assert shown["updated_at"].startswith("2026-11-18T")


async def test_a_frozen_http_process_does_not_delay_the_stop(monkeypatch):
    """It is killed when its time is over, and not only when it has been silent for too long."""
    monkeypatch.setattr(module, "SILENT_SECONDS", 3600)
    server, others = HttpServer(), http_processes(os.getpid())
    await server.serve(FakeControl(), ANY_PORT)
    child = http_process(os.getpid(), others)
    child.suspend()
    try:
        async with within(30):
            await server.close()
        assert not is_running(child.pid)
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()


@pytest.mark.parametrize("sent", [HALF, SLOW_BODY, PIPELINED, ASKED], ids=["header", "body", "never read", "idle"])
async def test_busy_connections_do_not_delay_the_stop(sent, monkeypatch):
    """Whatever their clients have begun, or left open, the process ends by itself, and nobody needs to kill it."""
    monkeypatch.setattr(module, "END_SECONDS", 3600)
    server = HttpServer()
    address = await server.serve(FakeControl(), ANY_PORT)
    opened = [connected(address.url) for _ in range(100)]
    for each in opened:
        each.setblocking(False)
        each.send(sent)
    assert (await asyncio.to_thread(get, address.port, "/healthz"))[0] == 200
    async with within(30):
        await server.close(3600)
    for each in opened:
        each.close()


async def test_the_http_process_does_not_have_the_passwords_of_the_service(monkeypatch):
    """It asks nobody but the service, so settings are of no use to it."""
    monkeypatch.setenv("SNAPREPLAY_KAFKA__SASL__PASSWORD", "secret")
    others = http_processes(os.getpid())
    async with served():
        environment = http_process(os.getpid(), others).environ()
    assert "PATH" in environment
    assert not [name for name in environment if name.startswith("SNAPREPLAY_")]


async def test_an_http_process_never_runs_out_of_files(caplog):
    """With 64 files and 300 half-open connections, it answers, and the log stays silent."""
    others = http_processes(os.getpid())
    async with served() as address:
        resource.prlimit(http_process(os.getpid(), others).pid, resource.RLIMIT_NOFILE, (64, 64))
        opened = [socket.create_connection(address, timeout=scaled(30)) for _ in range(300)]
        for each in opened:
            with suppress(OSError):  # closed already, because others came
                each.send(HALF)
        assert (await asyncio.to_thread(get, address.port, "/healthz"))[0] == 200
        for each in opened:
            each.close()
    assert not [each for each in caplog.records if each.name.startswith("snapreplay")]


async def test_a_defect_of_the_status_is_logged_and_not_told(caplog):
    """The answer is a problem without the reason, which the service's log has."""

    class Broken(FakeControl):
        def perform(self, command):
            if isinstance(command, Adopt):
                raise ZeroDivisionError("secret")
            return super().perform(command)

    async with served(Broken()) as address:
        async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
            answer = await client.post("/api/v1/partitions/0/adopt", json={"manifest_offset": 3})
            assert answer.status_code == 500
            assert "secret" not in answer.text
        async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
            done = await client.post("/trigger-snapshot", json={"partitions": [0]})
            listed = await client.get("/api/v1/operations")
    assert [each["id"] for each in listed.json()["items"]] == [done.json()["id"]]
    assert "ZeroDivisionError: secret" in caplog.text


async def test_the_advertised_name_may_be_used_by_the_other_processes():
    """What they pass on names it as its host; any other foreign name is refused as before."""
    settings = HttpSettings(port=0, advertised_url="http://ledger-0.ledger.prod:8080")
    server = HttpServer()
    address = await server.serve(FakeControl(), settings)
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as client:
        codes = []
        for name in ("ledger-0.ledger.prod:8080", "ledger-1.ledger.prod:8080"):
            answer = await client.post("/api/v1/partitions/2/retry?scope=local", headers={"Host": name})
            codes.append(answer.status_code)
    await server.close()
    assert codes == [202, 403]
