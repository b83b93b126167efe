"""Reads of states between a service and its HTTP process: a busy loop, a batch that is awaited, a frozen service."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter

import httpx2
import pytest

from snapreplay.api.state_link import StateLink
from snapreplay.service.control import wire
from snapreplay.service.control.state_reads import BatchNotReached, PartRead, ReadAt, ReadKey, Role, StateAnswer
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import served
from tests.support.stage import until

AT = ReadAt(0, 60, {"payments": 500}, 130, Role.OWNER, 0.0, "", "p1", "host-a")
ANSWER = StateAnswer((PartRead(AT, (("ada", b"\x05"),)),), (), 1)


@pytest.fixture
async def control():
    made = FakeControl()
    made.reading = lambda _: ANSWER
    return made


def asked(url, path="/api/v1/state/default/ada?partition=0"):
    with httpx2.Client(base_url=url, trust_env=False, timeout=scaled(20)) as client:
        return client.get(path)


async def test_a_busy_loop_delays_reads_and_nothing_else(control):
    """While a handler keeps the loop, a status is answered, and a read is given up. After it reads are answered again,
    and nobody answers those that were given up."""
    async with served(control) as url:
        assert (await asyncio.to_thread(asked, url)).json()["items"][0]["value"] == 5
        late, status = [], []
        threads = [
            threading.Thread(target=lambda: late.append(asked(url))),
            threading.Thread(target=lambda: status.append(asked(url, "/restore-status"))),
        ]
        for each in threads:
            each.start()
        blocked_until = time.monotonic() + scaled(30)
        while not (late and status) and time.monotonic() < blocked_until:
            time.sleep(0.02)  # noqa: ASYNC251 - it is the handler that blocks the loop
        assert (status[0].status_code, late[0].status_code) == (200, 503)
        assert late[0].json()["type"].endswith("read-late")
        reads = len(control.reads)
        assert (await asyncio.to_thread(asked, url)).status_code == 200
        assert len(control.reads) == reads + 1


async def test_a_batch_is_awaited_and_one_that_does_not_come_is_refused(control):
    """The answer comes when the batch does, at the second look for it; other reads are answered meanwhile."""
    looks = Counter[int | None]()

    def read(wanted):
        looks[wanted.min_batch] += 1
        now = 60 if looks[wanted.min_batch] == 1 else 61
        if wanted.min_batch > now:
            raise BatchNotReached(0, now, wanted.min_batch)
        return ANSWER

    control.reading = read
    async with served(control) as url:
        path = "/api/v1/state/default/ada?partition=0&min_batch="
        waiting = asyncio.create_task(asyncio.to_thread(asked, url, f"{path}61"))
        refused = asyncio.create_task(asyncio.to_thread(asked, url, f"{path}99"))
        await until(lambda: control.reads, "a read")
        assert (await asyncio.to_thread(asked, url)).status_code == 200
        assert (await waiting).status_code == 200
        document = (await refused).json()
        assert (document["status"], document["detail"][:26]) == (409, "partition 0 is at batch 61")


async def test_a_read_that_was_answered_while_the_http_process_stood_still_is_answered(monkeypatch):
    """Its time is over when that process runs again."""
    monkeypatch.setattr("snapreplay.api.state_link.READ_SECONDS", 0.1)
    service, ours = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    link = StateLink(reader, writer)
    running, read = asyncio.create_task(link.run()), asyncio.create_task(link.read(ReadKey("default", "ada")))
    await asyncio.sleep(0)
    question = wire.asked(service.recv(1 << 16)[wire.LENGTH.size :])
    service.sendall(wire.frame(wire.Answered(question.id, ANSWER)))
    time.sleep(0.2)  # noqa: ASYNC251 - it stands still
    assert await read == ANSWER
    writer.close()
    await running
    service.close()
