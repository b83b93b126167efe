"""Measures what it costs that the processes of an app follow each other, and how soon a death is noticed. No Kafka.

Run: `python -m benchmarks.peers [--peers 60] [--partitions 100] [--seconds 15] [--kills 12]`. The HTTP process of one
service follows so many peers, each with so many partitions that change all the time, at the pace that `api/events.py`
gives to such an app; then as many readers follow it. CPU is that of its HTTP process.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import signal
import threading
import time
from multiprocessing.queues import SimpleQueue
from typing import Any

import httpx2
import msgspec
import psutil

from benchmarks.harness import machine, spread
from snapreplay.api import event_stream, events
from snapreplay.api.event_stream import Ages
from snapreplay.service.control.protocol import StatusDocument
from tests.support.fake_control import LIVE, FakeControl
from tests.support.served import control_of, peer, program, served


class Busy(FakeControl):
    """A service whose partitions all change between two looks."""

    batch = 0

    def document(self) -> StatusDocument:
        self.batch += 1
        self.statuses = {p: msgspec.structs.replace(each, batch=self.batch) for p, each in self.statuses.items()}
        return super().document()


def busy(process_id: str, partitions: int) -> Busy:
    made = Busy([msgspec.structs.replace(LIVE, partition=number) for number in range(partitions)])
    made.service_facts = control_of(process_id).service_facts
    return made


def _tell(count: int, partitions: int, ports: SimpleQueue[list[int]]) -> None:
    """Tell, as so many peers, at so many ports."""

    async def tell(process_id: str) -> int:
        members = event_stream.members(busy(process_id, partitions).document())
        first = event_stream.status("p-1", members)
        change = event_stream.status("p-2", {"partitions": members["partitions"]})
        turns = max(2, round(count * len(first) / events.BYTES_PER_SECOND / events.TURN_SECONDS))

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            turn = 0
            while not writer.is_closing():
                event = first if turn == 0 else change if turn % turns == 0 else b""
                told = event + event_stream.ages(Ages(0.1, 0.1))
                writer.write(b"%x\r\n%s\r\n" % (len(told), told))
                await asyncio.sleep(events.TURN_SECONDS)
                turn += 1

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def run() -> None:
        ports.put([await tell(f"q{number}") for number in range(count)])
        await asyncio.sleep(3600)

    asyncio.run(run())


async def _used(seconds: float) -> str:
    """Say what HTTP's thread takes. The memory is that of the process, this program included."""
    process, began, before = psutil.Process(), time.monotonic(), _http_seconds()
    await asyncio.sleep(seconds)
    cpu = _http_seconds() - before
    return f"{100 * cpu / (time.monotonic() - began):.1f} % of a core, {process.memory_info().rss / 2**20:.0f} MB"


def _http_seconds() -> float:
    http = {each.native_id for each in threading.enumerate() if each.name == "snapreplay-http"}
    return sum(each.user_time + each.system_time for each in psutil.Process().threads() if each.id in http)


async def _costs(given: argparse.Namespace) -> None:
    one = busy("p1", given.partitions)
    ports: SimpleQueue[list[int]] = multiprocessing.get_context("fork").SimpleQueue()
    told = (given.peers, given.partitions, ports)
    teller = multiprocessing.get_context("fork").Process(target=_tell, args=told, daemon=True)
    teller.start()
    async with served(one) as url:
        await asyncio.sleep(2)
        print(f"alone: {await _used(given.seconds)}")
        one.peers = tuple(peer(f"q{number}", f"http://127.0.0.1:{port}") for number, port in enumerate(ports.get()))
        await asyncio.sleep(8)
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            rows = (await client.get("/api/v1/processes")).json()["items"]
        reached = sum(each["state"] == "reachable" for each in rows)
        print(f"following {reached} peers: {await _used(given.seconds)}")
        one.peers = ()
        teller.kill()
        readers = [asyncio.create_task(_read(url)) for _ in range(given.peers)]
        await asyncio.sleep(5)
        print(f"followed by {given.peers}: {await _used(given.seconds)}")
        for each in readers:
            each.cancel()


async def _read(url: str) -> None:
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=60) as client,
        client.stream("GET", url + events.PATH) as told,
    ):
        async for _ in told.aiter_raw():
            pass


async def _noticed(how: signal.Signals, kills: int) -> list[float]:
    seconds: list[float] = []
    for _ in range(kills):
        with program("p2") as two:
            one = control_of("p1", two.peer)
            async with served(one) as url, httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
                rows: list[Any] = []
                while [each["state"] for each in rows] != ["self", "reachable"]:
                    rows = (await client.get("/api/v1/processes")).json()["items"]
                await asyncio.sleep(1.5)
                two.send(how)
                began = time.monotonic()
                while not one.suspected:  # noqa: ASYNC110 - what is waited for knows no events
                    await asyncio.sleep(0.002)
                seconds.append(time.monotonic() - began)
    return sorted(seconds)


async def _main(given: argparse.Namespace) -> None:
    print(machine())
    await _costs(given)
    for how, kills in ((signal.SIGKILL, given.kills), (signal.SIGSTOP, given.kills // 3)):
        if seconds := await _noticed(how, kills):
            print(f"{how.name}, {len(seconds)} times: {spread(seconds)} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=60)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kills", type=int, default=12)
    asyncio.run(_main(parser.parse_args()))
