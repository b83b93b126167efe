"""The events of a process, in memory and on a real port."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
from fastapi.testclient import TestClient

from snapreplay.api import serving
from snapreplay.api.app import create_app
from snapreplay.api.events import (
    BYTES_PER_SECOND,
    MEMBERS,
    STATUS_SECONDS,
    TURN_SECONDS,
    Ages,
    Parser,
    ServerEvent,
    StatusEvents,
    changed,
)
from snapreplay.api.serving import connections_max
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.control.status import PartitionError
from tests.api.test_connections import connected, is_closed, served_here
from tests.support.deadlines import scaled, within
from tests.support.fake_control import LIVE, NOW, FakeControl, Local
from tests.support.in_memory import virtual
from tests.support.served import control_of, peer

ASKED = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def large(length: int) -> FakeControl:
    """A process whose status is that long."""
    error = PartitionError("RecordError", "x" * length, "", "stop", "", NOW)
    return FakeControl([msgspec.structs.replace(LIVE, error=error)])


def statuses(read: list[Ages | ServerEvent]) -> list[set[str]]:
    """The members of each status."""
    return [set(json.loads(each.data)) for each in read if isinstance(each, ServerEvent) and each.event == "status"]


class Changing:
    """A process whose `batch` is another one whenever it is looked at."""

    def __init__(self, control: FakeControl) -> None:
        self.control = control
        self.batch = 0

    def __call__(self) -> StatusDocument:
        self.batch += 1
        self.control.statuses[0] = msgspec.structs.replace(self.control.statuses[0], batch=self.batch)
        return self.control.document()


@asynccontextmanager
async def running(events: StatusEvents) -> AsyncIterator[None]:
    task = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    yield
    events.end()
    task.cancel()


async def read(stream: AsyncIterator[bytes], parser: Parser, seconds: float) -> list[Ages | ServerEvent]:
    """Read what comes within so many seconds."""
    found: list[Ages | ServerEvent] = []
    try:
        async with asyncio.timeout(seconds):
            async for piece in stream:
                found += parser.feed(piece)
    except TimeoutError:
        pass
    return found


def test_the_first_event_has_the_whole_status():
    """As JSON with all members, in a stream that no cache keeps; HEAD has no use and is refused."""
    control = FakeControl()
    with TestClient(create_app(Local(control), now=lambda: NOW)) as client:
        answer = client.get("/api/v1/events")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        first, ages = Parser(1 << 20).feed(answer.content)
        assert isinstance(first, ServerEvent)
        told = changed(None, first.data)
        assert told == msgspec.structs.replace(control.document(), made_at=0.0)
        assert set(json.loads(first.data)) == set(StatusDocument.__struct_fields__) - {"made_at"}
        assert isinstance(ages, Ages)
        assert client.head("/api/v1/events").status_code == 405


def test_a_place_is_kept_for_each_peer():
    """A page in half a hundred browsers takes no place of another one. Who gets none hears why."""
    events = StatusEvents()
    control = control_of("p1", peer("p2", "http://10.0.0.2:8080"))
    with TestClient(create_app(Local(control), events=events)) as client:
        events.readers = connections_max() // 2
        refused = client.get("/api/v1/events?follower=p9")
        assert refused.status_code == 503
        assert refused.json()["type"].endswith("too-many-streams")
        assert refused.headers["retry-after"] == "10"
        assert client.get("/api/v1/events?follower=p2").status_code == 200
        events.readers = connections_max()
        assert client.get("/api/v1/events?follower=p2").status_code == 503


@virtual
async def test_changes_are_told_once_a_second_and_ages_twice():
    """Only the members that changed, however often they did."""
    changing = Changing(FakeControl())
    events = StatusEvents(changing)
    async with running(events):
        found = await read(events.stream(changing.control.document()), Parser(1 << 20), 3.25 * STATUS_SECONDS)
    first, *others = statuses(found)
    assert len(first) == len(MEMBERS)
    assert others == [{"partitions"}] * 3
    assert len([each for each in found if isinstance(each, Ages)]) == 1 + 3.25 * STATUS_SECONDS // TURN_SECONDS
    assert TURN_SECONDS < STATUS_SECONDS


@virtual
async def test_many_bytes_come_less_often():
    """So that many large processes do not drown each other. What is asked for at once is sent at once."""
    changing = Changing(large(BYTES_PER_SECOND))
    events = StatusEvents(changing)
    parser = Parser(1 << 26)
    async with running(events):
        stream = events.stream(changing.control.document())
        assert len(statuses(await read(stream, parser, 1.5 * STATUS_SECONDS))) == 1
        stream = events.stream(changing.control.document())
        reading = asyncio.create_task(read(stream, parser, 1.5 * STATUS_SECONDS))
        await asyncio.sleep(0)
        events.tell(at_once=True)
        assert len(statuses(await reading)) == 2


@virtual
async def test_a_slow_reader_gets_all_that_it_has_missed():
    """It would otherwise keep members of long ago."""
    changing = Changing(FakeControl())
    events = StatusEvents(changing)
    async with running(events):
        stream = events.stream(changing.control.document())
        await anext(stream)
        for _ in range(3):
            events.tell(at_once=True)
        found = await read(stream, Parser(1 << 20), 1.5 * TURN_SECONDS)
    assert len(statuses(found)[0]) == len(MEMBERS)


@virtual
async def test_streams_end_with_a_bye():
    """A follower must not take the end for a death."""
    events = StatusEvents()
    task = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    stream = events.stream(FakeControl().document())
    reading = asyncio.create_task(read(stream, Parser(1 << 20), 10))
    await asyncio.sleep(TURN_SECONDS)
    events.end()
    assert (await reading)[-1] == ServerEvent("bye", b"{}")
    task.cancel()


async def test_a_stream_lasts_as_long_as_its_reader_reads(monkeypatch):
    """One that does not is cut off, and the other continues although a request must be over by then."""
    exchange_seconds = scaled(1)
    monkeypatch.setattr(serving, "EXCHANGE_SECONDS", exchange_seconds)
    control, loop = large(1 << 20), asyncio.get_running_loop()
    events = StatusEvents(control.document)
    async with running(events), served_here(create_app(Local(control), events=events)) as (url, server):
        began, open_ones = loop.time(), server.connections
        with connected(url) as deaf:
            deaf.sendall(ASKED)
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=scaled(20)) as client:
                async with client.stream("GET", "/api/v1/events") as answer, within(30):
                    read_on = answer.aiter_raw()
                    while loop.time() - began < 3 * exchange_seconds or len(open_ones) > 1:
                        await anext(read_on)
                assert is_closed(deaf)
