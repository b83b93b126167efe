"""HTTP over a `FakeControl`, in a process of its own that a test kills or freezes, or in the test's."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from unittest import mock

import msgspec
import pytest

from snapreplay.api import server as api_server
from snapreplay.api.server import HttpServer
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.core.peers import Peer
from tests.support.deadlines import scaled, within
from tests.support.fake_control import FACTS, FakeControl
from tests.support.waiting import not_yet, pause

LATE = HttpSettings(port=0, suspect_after_ms=600_000)
"""With these no process is suspected for its silence, however long it pauses."""
PROGRAM = """
    import asyncio, json, multiprocessing, sys, time

    from snapreplay.api.server import HttpServer
    from snapreplay.service.config.groups import HttpSettings
    from tests.support.served import control_of

    async def main():
        server = HttpServer()
        address = await server.serve(control_of(sys.argv[1]), HttpSettings(port=0, **json.loads(sys.argv[2])))
        print(address.url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await server.close()

    asyncio.run(main())
"""


class Program:
    """A process that serves HTTP until it gets a signal to end."""

    def __init__(self, process_id: str, **http: str) -> None:
        """Take other settings of HTTP than the defaults."""
        self.process_id = process_id
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), process_id, json.dumps(http)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def peer(self) -> Peer:
        return peer(self.process_id, self.url)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Let it end in good order."""
        self.process.communicate("\n")


@contextmanager
def program(process_id: str, **http: str) -> Iterator[Program]:
    started = Program(process_id, **http)
    with started.process:
        yield started
        started.process.kill()


def control_of(process_id: str, *peers: Peer, app_id: str = FACTS.app_id) -> FakeControl:
    control = FakeControl()
    control.service_facts = msgspec.structs.replace(
        FACTS, process_id=process_id, instance_id=f"name-{process_id}", host=f"host-{process_id}", app_id=app_id
    )
    control.peers = peers
    return control


def peer(process_id: str, url: str, *owned: int) -> Peer:
    """Advertise a process of that name at `url`."""
    return Peer(process_id, f"name-{process_id}", f"host-{process_id}", url, owned)


@asynccontextmanager
async def served(control: FakeControl, settings: HttpSettings | None = None) -> AsyncIterator[str]:
    """Serve in this process; yields the URL. It ends in good order, however long that takes on a busy machine."""
    server = HttpServer()
    address = await server.serve(control, settings or HttpSettings(port=0))
    try:
        yield address.url
    finally:
        with mock.patch.object(api_server, "END_SECONDS", scaled(30)):
            await server.close(scaled(30))


async def until(holds: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait for a condition that has to be asked for."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with within(30):
            while True:
                with not_yet():
                    if await holds():
                        return
                await asyncio.sleep(pause(loop.time() - began))
    except TimeoutError:
        pytest.fail(f"not within its time: {what}")
