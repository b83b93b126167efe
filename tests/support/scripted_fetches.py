"""A broker that follows a script: what it answers to each fetch is the test's. It knows no other request than those
that a reader sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataResponse_v1
from aiokafka.protocol.offset import OffsetRequest_v2, OffsetResponse_v2

from snapreplay.service.kafka.fetches import BY_ID, BY_NAME
from tests.support.wire import HOST, Streams, listening, read_frame

FETCH, LIST_OFFSETS, METADATA, VERSIONS = 1, 2, 3, 18
EARLIEST = -2
TOPIC, TOPIC_ID = "t", "AAECAwQFBgcICQoLDA0ODw"
END = 1000
"""Of the log, for all that this broker says of it."""


class Says(NamedTuple):
    """The answer to a fetch for the partition, and how it comes: whole, cut in its bytes, or not at all."""

    records: bytes = b""
    code: int = 0
    whole_code: int = 0
    throttle_ms: int = 0
    preferred_replica: int = -1
    how: str = "whole"
    """Or "half": the connection ends in the middle of the frame. "short": the frame ends in the middle of the answer.
    "closed": the connection ends. "last": it ends behind the answer. "silent": there is no answer. "late": it comes
    once the broker's `lets_go` is set."""


class ScriptedBroker:
    """Brokers 1 and 2. `fetched` are the offsets asked for, by broker; `racks` are those of the clients; `leader` is
    what the metadata say of all partitions; `bounds_asked` counts the requests for `start` or the end; `frozen` brokers
    keep their connections and read nothing before `lets_go`; `is_named` if readers may fetch by name; `stable_offset`
    is the last stable offset, which readers of committed records get nothing behind."""

    def __init__(self, script: Callable[[int, int, int], Says]) -> None:
        """Take `script`: broker, number of this fetch from zero, its offset."""
        self.script = script
        self.leader = 1
        self.partitions = 1
        self.start, self.bounds_asked = 0, 0
        self.stable_offset = END
        self.newest_version = BY_ID.API_VERSION
        self.is_named = False
        self.frozen: set[int] = set()
        self.fetched: list[tuple[int, int]] = []
        self.fetched_at: list[float] = []  # by the loop's clock
        self.racks: list[str] = []
        self.lets_go = asyncio.Event()
        self.connections = 0
        self.address = ""
        self._ports: dict[int, int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedBroker]:
        async with listening(HOST, 0, self._first) as one, listening(HOST, 0, self._second) as two:
            self._ports, self.address = {1: one, 2: two}, f"{HOST}:{one}"
            yield self

    async def _first(self, client: Streams) -> None:
        await self._serve(1, client)

    async def _second(self, client: Streams) -> None:
        await self._serve(2, client)

    async def _serve(self, node: int, client: Streams) -> None:
        self.connections += 1
        while frame := await read_frame(client[0]):
            if node in self.frozen:
                await self.lets_go.wait()
            key, version, correlation, name_size = struct.unpack_from(">hhih", frame, 4)
            body = BytesIO(frame[14 + max(name_size, 0) :])
            head = struct.pack(">i", correlation)
            match key:
                case 18:
                    known = [(FETCH, 4, self.newest_version), (LIST_OFFSETS, 0, 2), (METADATA, 0, 1), (VERSIONS, 0, 0)]
                    await self._send(client, head + ApiVersionResponse_v0(0, known).encode())
                case 3:
                    brokers = [(number, HOST, port, None) for number, port in self._ports.items()]
                    led = [(0, number, self.leader, [1, 2], [1, 2]) for number in range(self.partitions)]
                    topics = [(0, TOPIC, False, led)]
                    await self._send(client, head + MetadataResponse_v1(brokers, 1, topics).encode())
                case 2:
                    self.bounds_asked += 1
                    bounds: Any = OffsetRequest_v2.decode(body)
                    end = self.stable_offset if bounds.isolation_level else END
                    found: list[Any] = [
                        (topic, [(number, 0, -1, self.start if at == EARLIEST else end) for number, at in some])
                        for topic, some in bounds.topics
                    ]
                    await self._send(client, head + OffsetResponse_v2(0, found).encode())
                case 1:
                    assert version == self.newest_version or (self.is_named and version == BY_NAME.API_VERSION)
                    body.read(1)  # no tags
                    asked: Any = (BY_ID if version == BY_ID.API_VERSION else BY_NAME).decode(body)
                    if not await self._answer(node, client, head + b"\0", asked):
                        return
                case _:
                    raise AssertionError(f"a request that a reader does not need: {key}")

    async def _answer(self, node: int, client: Streams, head: bytes, asked: Any) -> bool:
        ((_, ((_, _, offset, *_),), _),) = asked.topics
        self.racks.append(asked.rack_id)
        says = self.script(node, len(self.fetched), offset)
        if asked.isolation_level and offset >= self.stable_offset:
            says = says._replace(records=b"")
        self.fetched.append((node, offset))
        self.fetched_at.append(asyncio.get_running_loop().time())
        if says.how == "silent":
            return True
        if says.how == "closed":
            return False
        if says.how == "late":
            await self.lets_go.wait()
        if not says.records and not says.code and not says.whole_code and says.preferred_replica < 0:
            await asyncio.sleep(asked.max_wait_time / 1000)  # as a broker waits for records
        ends, replica = (END, self.stable_offset), says.preferred_replica
        partition: tuple[Any, ...] = (0, says.code, *ends, 0, [], replica, says.records, {})
        topics: list[Any] = [] if says.whole_code else [(TOPIC_ID, [partition], {})]
        answer = head + BY_ID.RESPONSE_TYPE(says.throttle_ms, says.whole_code, 0, topics, {}).encode()
        if says.how == "half":
            client[1].write(struct.pack(">i", len(answer)) + answer[: len(answer) // 2])
            await client[1].drain()
            return False
        await self._send(client, answer[: len(answer) // 2] if says.how == "short" else answer)
        return True

    @staticmethod
    async def _send(client: Streams, answer: bytes) -> None:
        client[1].write(struct.pack(">i", len(answer)) + answer)
        await client[1].drain()


def serving(batches: Mapping[int, bytes], *first: Says) -> Callable[[int, int, int], Says]:
    """Return a script: these answers, then the batches from the offset on, then nothing."""

    def script(node: int, number: int, offset: int) -> Says:
        if number < len(first):
            return first[number]
        return Says(b"".join(data for at, data in batches.items() if at >= offset))

    return script
