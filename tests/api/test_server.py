"""HTTP on a real port, of a service that is killed, stopped, or out of files."""

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import psutil
import pytest

from snapreplay.api import server as module
from snapreplay.api.server import HttpServer
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import load_settings
from snapreplay.service.control.operations import AdoptSnapshot
from snapreplay.service.control.protocol import Address
from tests.api.test_connections import HALF, PIPELINED, SLOW_BODY, connected
from tests.support.deadlines import is_running, scaled, within
from tests.support.fake_control import FakeControl

ANY_PORT = HttpSettings(port=0)
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROGRAM = """
    import asyncio, multiprocessing, os, sys, time

    from snapreplay.api.server import HttpServer
    from snapreplay.service.config.groups import HttpSettings
    from tests.support.fake_control import FakeControl

    async def main():
        address = await HttpServer().serve(FakeControl(), HttpSettings(port=0))
        print(address.port, flush=True)
        while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if word == "fork":
                worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
                worker.start()
                print(worker.pid, flush=True)
            else:
                opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(word))]
                print(len(opened), "files", flush=True)

    asyncio.run(main())
"""


@pytest.fixture
def program() -> Iterator[tuple[subprocess.Popen[str], int, list[int]]]:
    """A process that serves HTTP, its port, and the workers that it has forked, as a pool in a handler does."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM)], text=True, **pipes) as process:
        assert process.stdout is not None
        workers: list[int] = []
        yield process, int(process.stdout.readline()), workers
        process.kill()
        for each in workers:
            os.kill(each, signal.SIGKILL)


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """(status code, body); (0, {}) without an answer."""
    try:
        response = httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=scaled(10), trust_env=False)
    except httpx2.TransportError:
        return 0, {}
    return response.status_code, response.json()


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


def test_a_killed_service_leaves_neither_port_nor_connections(program):
    """Although a worker that it has forked lives on with copies of its files: the others would not see its death."""
    process, port, worker = program
    assert get(port, "/api/v1")[0] == 200
    with connected(f"http://127.0.0.1:{port}") as client:
        client.sendall(EVENTS)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        process.stdin.write("fork\n")
        process.stdin.flush()
        worker.append(int(process.stdout.readline()))
        process.kill()
        while client.recv(1 << 16):
            pass
    process.wait()
    module.bind("127.0.0.1", port).close()
    assert is_running(worker[0])


def test_http_leaves_files_to_the_service(program):
    """With 64 files, 44 of them in use, and 300 half-open connections, HTTP answers, the service can open others, and
    the log stays silent."""
    process, port, _ = program

    def open_files(count):
        process.stdin.write(f"{count}\n")
        process.stdin.flush()
        return process.stdout.readline()

    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (64, 64))
    others = 44 - psutil.Process(process.pid).num_fds()
    assert open_files(others) == f"{others} files\n"
    opened = [socket.create_connection(("127.0.0.1", port), timeout=scaled(30)) for _ in range(300)]
    for each in opened:
        with suppress(OSError):  # closed already, because others came
            each.send(HALF)
    assert get(port, "/healthz")[0] == 200
    assert open_files(14) == "14 files\n"  # with eight connections there would be room for twelve; 13 if one just ends
    for each in opened:
        each.close()
    process.kill()
    assert process.stderr.read() == ""


@pytest.mark.parametrize("sent", [HALF, SLOW_BODY, PIPELINED, ASKED], ids=["header", "body", "never read", "idle"])
async def test_busy_connections_do_not_delay_the_stop(sent, monkeypatch):
    """Even if their clients have begun something, or left it open, the process ends without a kill."""
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


async def test_a_defect_of_the_status_is_logged_and_not_told(caplog):
    """The answer is a problem without the reason, which the service's log has."""

    class Broken(FakeControl):
        def perform(self, command):
            if isinstance(command, AdoptSnapshot):
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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "::1", "localhost"])  # noqa: S104 - that is the case
async def test_what_others_reach_asks_for_a_login(host, tmp_path, monkeypatch):
    """The loopback address does not. Each of the three remedies is carried out, as it is printed."""
    monkeypatch.chdir(tmp_path)

    async def serve(*given: str) -> None:
        settings = load_settings({"http.host": host, "http.port": 0, **dict(each.split("=") for each in given)})
        http = HttpServer()
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
