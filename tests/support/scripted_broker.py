"""Brokers of a test's own at real sockets, which answer a producer by a script. They know what Kafka's would check:
transactions, epochs and sequence numbers."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from struct import Struct
from typing import Any, Literal

from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.coordination import FindCoordinatorRequest_v1
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.produce import ProduceRequest_v7
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest_v0, EndTxnRequest_v0, InitProducerIdRequest_v0
from aiokafka.record.memory_records import MemoryRecords

from tests.support.wire import HOST, Streams, listening, read_frame

FIND_COORDINATOR = 10

Place = tuple[str, int]
"""A partition."""

Cut = Literal["close before", "close after", "half", "mute", "hold"]
"""The connection closes before or after the request is done, or in its answer; it is done or not, and never
answered."""

Step = int | Cut | Literal["moved"]
"""What becomes of a request: refused with this code, not answered, or refused because another node has that role
now."""

_STRUCTS: dict[int, type[RequestStruct]] = {
    each.API_KEY: each
    for each in (
        ApiVersionRequest_v0,
        FindCoordinatorRequest_v1,
        MetadataRequest_v5,
        ProduceRequest_v7,
        AddPartitionsToTxnRequest_v0,
        EndTxnRequest_v0,
        InitProducerIdRequest_v0,
    )
}
_BATCH_HEAD = Struct(">qiibIhiqqqhii")
_NOT_LEADER, _NOT_COORDINATOR, _OUT_OF_ORDER, _OLD_EPOCH, _WRONG_STATE = 6, 16, 45, 47, 48
_NO_OFFSET = -1


class ScriptedCluster:
    """Two nodes, one transactional id and a partition 0 of each topic.

    Attributes:
        leaders: the node that leads a topic, 1 unless it is there.
        script: by API key, what becomes of the next requests; those after them are done.
        always: by API key, what becomes of all others.
        throttle_ms: of each answer to a Produce request.
        asked: the API keys of all requests that have arrived, in order.
        committed: the values in committed transactions, by topic.
        ends: what each EndTxn that has arrived asked for, True to commit.
    """

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.leaders: dict[str, int] = {}
        self.coordinator = 1
        self.script: defaultdict[int, list[Step]] = defaultdict(list)
        self.always: dict[int, Step] = {}
        self.throttle_ms = 0
        self.asked: list[int] = []
        self.committed: defaultdict[str, list[bytes]] = defaultdict(list)
        self.ends: list[bool] = []
        self.connections = 0
        self.epoch = -1
        self._open: defaultdict[str, list[bytes]] = defaultdict(list)
        self._added: set[Place] = set()
        self._lengths: Counter[Place] = Counter()
        self._sequences: dict[tuple[Place, int], tuple[int, int, int]] = {}

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for node in (1, 2):

                async def carry(client: Streams, node: int = node) -> None:
                    await self._serve(node, client)

                self.ports[node] = await stack.enter_async_context(listening(HOST, 0, carry))
            yield

    async def _serve(self, node: int, client: Streams) -> None:
        reader, writer = client
        self.connections += 1
        try:
            while frame := await read_frame(reader):
                key, version, correlation_id = Struct(">hhi").unpack_from(frame, 4)
                struct = _STRUCTS[key]
                assert version == struct.API_VERSION or key == ApiVersionRequest_v0.API_KEY
                (name_bytes,) = Struct(">h").unpack_from(frame, 12)
                request = struct.decode(BytesIO(frame[14 + name_bytes :]))
                self.asked.append(key)
                steps = self.script[key]
                step = steps.pop(0) if steps else self.always.get(key, 0)
                if step == "close before":
                    return
                if step == "hold":
                    continue
                answer = request.RESPONSE_TYPE(*self._answer(node, request, step)).encode()
                whole = Struct(">ii").pack(len(answer) + 4, correlation_id) + answer
                if step == "close after":
                    return
                if step != "mute":
                    writer.write(whole if step != "half" else whole[: len(whole) // 2])
                    await writer.drain()
                if step == "half":
                    return
        finally:
            self.connections -= 1
            with contextlib.suppress(OSError):
                writer.close()

    def _answer(self, node: int, request: Any, step: Step) -> list[Any]:
        code = step if isinstance(step, int) else 0
        if step == "moved":
            self._move(request)
        if isinstance(request, ApiVersionRequest_v0):
            return [0, [(key, each.API_VERSION, each.API_VERSION) for key, each in _STRUCTS.items()]]
        if isinstance(request, MetadataRequest_v5):
            brokers = [(each, HOST, port, None) for each, port in self.ports.items()]
            topics = [(0, each, False, [self._led(each)]) for each in request.topics or ()]
            return [0, brokers, "scripted", 1, topics]
        if isinstance(request, FindCoordinatorRequest_v1):
            return [0, code, None, self.coordinator, HOST, self.ports[self.coordinator]]
        if isinstance(request, ProduceRequest_v7):
            made = [
                (topic, [self._stored(node, request, (topic, each), data, code) for each, data in some])
                for topic, some in request.topics
            ]
            return [made, self.throttle_ms]
        code = code or self._refusal(node, request)
        if isinstance(request, AddPartitionsToTxnRequest_v0):
            if not code:
                self._added |= {(topic, each) for topic, some in request.topics for each in some}
            return [0, [(topic, [(each, code) for each in some]) for topic, some in request.topics]]
        is_end = isinstance(request, EndTxnRequest_v0)
        if is_end:
            self.ends.append(request.transaction_result)
        if not code:
            self.epoch += not is_end
            self._end(commit=is_end and request.transaction_result)
        return [0, code] if is_end else [0, code, 7, self.epoch]

    def _move(self, request: Any) -> None:
        if isinstance(request, ProduceRequest_v7):
            self.leaders.update((topic, 3 - self.leaders.get(topic, 1)) for topic, _ in request.topics)
        else:
            self.coordinator = 3 - self.coordinator

    def _led(self, topic: str) -> tuple[Any, ...]:
        leader = self.leaders.get(topic, 1)
        return (0, 0, leader, [leader], [leader], [])

    def _refusal(self, node: int, request: Any) -> int:
        if node != self.coordinator:
            return _NOT_COORDINATOR
        return _OLD_EPOCH if getattr(request, "producer_epoch", self.epoch) != self.epoch else 0

    def _end(self, *, commit: bool) -> None:
        if commit:
            for topic, values in self._open.items():
                self.committed[topic] += values
        self._open.clear()
        self._added.clear()

    def _stored(self, node: int, request: Any, place: Place, data: bytes, code: int) -> tuple[int, int, int, int, int]:
        """Store a batch, unless it is refused; one that was stored before is answered with its offset."""
        head = _BATCH_HEAD.unpack_from(data)
        epoch, sequence, count = head[-3:]
        topic, partition = place
        if not code:
            next_sequence, last_sequence, last_offset = self._sequences.get((place, epoch), (0, -1, _NO_OFFSET))
            if node != self.leaders.get(topic, 1):
                code = _NOT_LEADER
            elif epoch != self.epoch:
                code = _OLD_EPOCH
            elif request.transactional_id is not None and place not in self._added:
                code = _WRONG_STATE
            elif sequence == last_sequence:
                return (partition, 0, last_offset, -1, 0)
            elif sequence != next_sequence:
                code = _OUT_OF_ORDER
        if code:
            return (partition, code, _NO_OFFSET, -1, 0)
        offset = self._lengths[place]
        self._lengths[place] += count
        self._sequences[place, epoch] = sequence + count, sequence, offset
        records = MemoryRecords(data)
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            kept = self._open if request.transactional_id is not None else self.committed
            kept[topic] += [bytes(each.value) for each in batch]
        return (partition, 0, offset, -1, 0)
