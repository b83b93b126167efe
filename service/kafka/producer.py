"""The transactional producer of one partition: `start()` is the fence, each batch is one transaction.

It is used until the first doubt, then discarded. aiokafka 0.14.0 has three traps. It commits a transaction with missing
records and says OK, so every answer is checked before the commit is asked for. It waits for ever for absent brokers, so
every wait has our deadline. It repeats an unanswered request silently, and the old copy can decide a later transaction
(KAFKA-17754, reproduced on 4.3.1), so after an unanswered request the producer is discarded.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import aiokafka.producer.sender as aiokafka_sender
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.errors import InvalidTimestampError, NodeNotReadyError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from aiokafka.structs import RecordMetadata

from snapreplay import engine
from snapreplay.app.names import alter
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, ROOM_BYTES
from snapreplay.app.record import Carried, Output
from snapreplay.errors import SnapreplayError, described
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import ClockRefused, CommitInDoubt, RefusedRecord
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.core.retained import Ending
from snapreplay.service.kafka.clients import producer_client
from snapreplay.service.kafka.config import MIB, producer_arguments
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, commit_error, lifted_times, translated
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.kafka.shutdown import cut_producer
from snapreplay.service.ports import LogRecord, TopicPartition

BATCH_OVERHEAD_BYTES = 128
"""Kept free below a topic's max.message.bytes; the header of a record batch is 61 bytes."""

_NO_HEADERS: list[tuple[str, bytes | None]] = []


@dataclass(frozen=True)
class TopicShape:
    """The facts of a topic that are needed before the first record for it is batched."""

    partition_count: int
    batch_bytes: int  # a batch is full at this size
    # The topic's max.message.bytes; one record may fill a batch beyond batch_bytes.
    record_bytes_max: int


AT_ONCE_OUTPUTS = 1024 if engine.compiled is None else 16_384
"""What `add_outputs` is given at a time: it takes one millisecond, two by the engine. Each time the engine begins new
batches, of which a partition takes one after the other."""

_HEAD, _CHECKED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_FORMAT, _TRANSACTIONAL, _NO_EPOCH, _BEFORE_LENGTH_ENDS = 2, 0x10, -1, 12
_ENCODERS: dict[int, Callable[[bytes], bytes]] = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}


class PackedBatch:
    """A batch whose records the compiled engine has packed. Has what the client asks its `BatchBuilder` for."""

    def __init__(
        self,
        compiled: engine.Compiled,
        compression: int,
        body: bytes,
        record_count: int,
        first_ms: int,
        largest_ms: int,
    ) -> None:
        self._compiled = compiled
        self._compression = compression
        self._body = body
        self._record_count = record_count
        self._times = first_ms, largest_ms
        self._producer = (-1, -1, 0)
        self._built: bytes | None = None

    def record_count(self) -> int:
        return self._record_count

    def size(self) -> int:
        return _HEAD.size + _CHECKED.size + len(self._body) if self._built is None else len(self._built)

    def closed(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: it is closed."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = producer_id, producer_epoch, base_sequence

    def _build(self) -> bytes:
        if self._built is None:
            encode = _ENCODERS.get(self._compression)
            body = encode(self._body) if encode is not None else self._body
            attributes = _TRANSACTIONAL | self._compression
            last = self._record_count - 1
            checked = _CHECKED.pack(attributes, last, *self._times, *self._producer, last + 1) + body
            length = _HEAD.size + len(checked) - _BEFORE_LENGTH_ENDS
            checksum = self._compiled.crc32c(checked, 0, len(checked))
            self._built = _HEAD.pack(0, length, _NO_EPOCH, _FORMAT, checksum) + checked
        return self._built


class _Lane:
    """The batches of one partition; the last one is still open."""

    __slots__ = ("batches", "compression", "shape", "target")

    def __init__(self, target: TopicPartition, shape: TopicShape, compression: int) -> None:
        self.target, self.shape, self.compression = target, shape, compression
        self.batches = [self._begun()]

    def _begun(self) -> BatchBuilder:
        size = self.shape.batch_bytes - BATCH_OVERHEAD_BYTES
        return BatchBuilder(size, self.compression, is_transactional=True)

    def add(self, record: Output | LogRecord, timestamp_ms: int | None) -> None:
        """Add a record, or raise RefusedRecord if it is too large for its topic."""
        key, value, headers = record.key, record.value, record.headers
        # The client wants a list; a shared empty one costs nothing.
        listed = list(headers) if headers else _NO_HEADERS
        if type(record) is Carried:
            listed = [*headers, *record.carried]
        # As the client's `append`, without serializers. Two calls less save 0.1 µs of 0.6 a record (measured).
        batch = self.batches[-1]
        added = batch._builder.append(batch._relative_offset, timestamp_ms, key, value, listed)
        if added is None:
            batch = self._begun()
            self.batches.append(batch)
            added = batch._builder.append(0, timestamp_ms, key, value, listed)
        batch._relative_offset += 1
        # Only the first record of a batch may pass the batch's size, so only there can one be too large.
        if added.offset == 0 and added.size + BATCH_OVERHEAD_BYTES > self.shape.record_bytes_max:
            # Our own topics are refused at start with much less.
            least = DEFAULT_LIMIT_BYTES if isinstance(record, LogRecord) else 0
            raise _too_large(self.target.topic, added.size, self.shape.record_bytes_max, least)


class TransactionBatches:
    """Batches of one transaction, per partition in the order of their records."""

    def __init__(self, shapes: Mapping[str, TopicShape], compression: int) -> None:
        self._shapes = shapes
        self._compression = compression
        self._lanes: dict[str, dict[int, _Lane]] = {}
        self._packed: dict[TopicPartition, list[PackedBatch]] = {}

    def add_outputs(self, outputs: Sequence[Output], state_topic: str, state_partition: int) -> None:
        """Choose each one's partition and append it.

        An explicit partition; or the state's own, for a key that is the input's under an equal partition
        count, and for no key; or Kafka's hash of the key.

        Raises:
            RefusedRecord: no such partition, or too large for its topic.
        """
        same = self._shapes[state_topic].partition_count
        # Behind what the client's builder has taken, nothing may be packed: order.
        if (
            engine.compiled is not None
            and not self._lanes
            and self._pack(engine.compiled, outputs, same, state_partition)
        ):
            return
        counts = {topic: shape.partition_count for topic, shape in self._shapes.items()}
        for output in outputs:
            topic, key, partition = output.topic, output.key, output.partition
            count = counts[topic]
            if partition is None:
                if key is None or (output.same_key and count == same):
                    partition = state_partition % count
                else:
                    partition = murmur_positive(key) % count
            try:
                lane = self._lanes[topic][partition]
            except KeyError:
                lane = self._lane(topic, partition)
            lane.add(output, output.timestamp_ms)

    def _pack(self, compiled: engine.Compiled, outputs: Sequence[Output], same: int, state_partition: int) -> bool:
        """Let the engine pack them. False: one is unusual, or to be refused, so none is packed."""
        free = BATCH_OVERHEAD_BYTES
        shapes = {
            topic: (number, shape.partition_count, shape.batch_bytes - free, shape.record_bytes_max - free)
            for number, (topic, shape) in enumerate(self._shapes.items())
        }
        packed = compiled.pack(list(outputs), shapes, Output, state_partition, same, wall_ms())
        for topic, partition, bodies in packed or ():
            made = [PackedBatch(compiled, self._compression, *each) for each in bodies]
            self._packed.setdefault(TopicPartition(topic, partition), []).extend(made)
        return packed is not None

    def add_records(self, records: Iterable[LogRecord], partition: int) -> list[tuple[TopicPartition, int, int]]:
        """Append in order, with the present time. Return for each its partition, batch number and place there."""
        places, now_ms = [], wall_ms()
        for record in records:
            lane = self._lane(record.topic, partition)
            lane.add(record, now_ms)
            before = len(self._packed.get(lane.target, ()))
            places.append((lane.target, before + len(lane.batches) - 1, lane.batches[-1].record_count() - 1))
        return places

    @property
    def runs(self) -> dict[TopicPartition, list[PackedBatch | BatchBuilder]]:
        """The batches to send, by partition; never empty lists."""
        runs: dict[TopicPartition, list[PackedBatch | BatchBuilder]] = {**self._packed}
        for lanes in self._lanes.values():
            for lane in lanes.values():
                runs[lane.target] = [*runs.get(lane.target, ()), *lane.batches]
        return runs

    def _lane(self, topic: str, partition: int) -> _Lane:
        lanes = self._lanes.setdefault(topic, {})
        if partition not in lanes:
            shape = self._shapes[topic]
            if not 0 <= partition < shape.partition_count:
                raise _no_such_partition(topic, partition, shape.partition_count)
            target = TopicPartition(topic, partition)
            lanes[partition] = _Lane(target, shape, self._compression)
        return lanes[partition]


def _no_such_partition(topic: str, partition: int, count: int) -> RefusedRecord:
    return RefusedRecord(
        f"topic {topic} has no partition {partition}: it has {count}",
        hint="send to a partition below the count, or let the key decide",
        topic=topic,
        error="no such partition",
    )


def _too_large(topic: str, size_bytes: int, limit: int, least_bytes: int) -> RefusedRecord:
    """Make the error for a record of `size_bytes` with headers; `least_bytes`: the lowest limit the topic may have."""
    wanted = max(size_bytes + ROOM_BYTES, least_bytes)
    return RefusedRecord(
        f"a record of {size_bytes} bytes for topic {topic} does not fit its max.message.bytes={limit}",
        hint=f"`{alter(topic, f'max.message.bytes={wanted}')}`",
        topic=topic,
        error="too large",
        size_bytes=size_bytes,
        limit_bytes=limit,
    )


# The pause after CONCURRENT_TRANSACTIONS on a transaction's first request. The client's 20 ms limit one
# producer to 60 transactions/s; 2 ms give 340 to 550 on one broker, 74 to 116 on three (measured).
aiokafka_sender.BACKOFF_OVERRIDE = 0.002

SEQUENCE_RECORDS_MAX = 1_000_000_000
"""aiokafka's sequence numbers turn negative at 2^31 records per partition, which brokers refuse."""

_WATCHED = (ProduceRequest, AddPartitionsToTxnRequest, EndTxnRequest)

LimitsOf = Callable[[Collection[str]], Awaitable[Mapping[str, int]]]
"""Topics → max.message.bytes of each. Raises RefusedTopic for one that does not exist."""


class KafkaProducer:
    """A producer, `ports.Producer`. Made by `fence`, which returns it started."""

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        limits_of: LimitsOf,
        forget_limits: Callable[[], None] = lambda: None,
        shared: Shared | None = None,
    ) -> None:
        """Take `forget_limits`, which is called when a record was refused: they may have been changed. `shared`, of
        this loop; None: it shares with nobody."""
        self._shared = shared or Shared(settings)
        self.transactional_id = transactional_id
        self._forget_limits = forget_limits
        self._settings = settings
        self._commit_s = settings.timeouts.commit_ms / 1000
        self._limits_of = limits_of
        self._shapes: dict[str, TopicShape] = {}
        self._batch_bytes = int(settings.kafka.get("max.batch.size", MIB))
        self._records_sent = 0
        self._unanswered = False
        self._discarded = False
        self._ending = Ending(asked=False)
        self._producer = producer_client(producer_arguments(settings, transactional_id), self._shared)
        self._watch_requests()

    @property
    def needs_renewal(self) -> bool:
        """Whether the next transaction needs a new producer, although the last one ended with OK."""
        return self._unanswered or self._records_sent > SEQUENCE_RECORDS_MAX or self._discarded

    @property
    def lineage(self) -> Lineage:
        manager = self._producer._txn_manager
        return Lineage(int(manager.producer_id), int(manager.producer_epoch))

    @property
    def ending(self) -> Ending:
        return self._ending

    async def start(self, deadline_s: float) -> None:
        """Become the owner of the id. On any error the producer is gone.

        Raises:
            Unreachable, NotAuthenticated, NotAuthorized, StopError: as in `ports.Cluster.fence`.
        """
        doing = f"fencing {self.transactional_id}"
        asked = Asked(self._settings, "IdempotentWrite", self.transactional_id)
        async with translated(doing, asked, within_s=deadline_s, give_up=self._give_up):
            await entered(self._producer.start(), self._settings)
        self._producer.client.give_back()

    async def commit(self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]) -> tuple[int, ...]:
        """Commit as `ports.Producer.commit` says. `records` is never empty."""
        self._ending = Ending(asked=False)
        if self.needs_renewal:
            await self.discard()
            raise CommitInDoubt(
                f"producer {self.transactional_id} must be renewed before another transaction",
                transactional_id=self.transactional_id,
            )
        try:
            async with self._producer.client.writing(self._commit_s):
                offsets = await self._transaction(partition, outputs, records)
        except (*CLIENT_ERRORS, SnapreplayError) as error:
            await self.discard()
            ended = commit_error(error, self.transactional_id, settings=self._settings)
            if isinstance(ended, RefusedRecord):
                self._forget_limits()
            raise ended from error
        except BaseException:
            await self.discard()
            raise
        self._producer.client.give_back()
        return offsets

    async def _give_up(self) -> None:
        self._shared.distrust()
        await self.discard()

    async def discard(self) -> None:
        if not self._discarded:
            self._discarded = True
            await cut_producer(self._producer)

    async def _transaction(
        self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]
    ) -> tuple[int, ...]:
        state_topic = records[-1].topic
        if unknown := ({o.topic for o in outputs} | {r.topic for r in records}) - self._shapes.keys():
            await self._learn(unknown)
        batches = TransactionBatches(self._shapes, self._producer._message_accumulator._compression_type)
        for start in range(0, len(outputs), AT_ONCE_OUTPUTS):
            if start:
                await asyncio.sleep(0)
            batches.add_outputs(outputs[start : start + AT_ONCE_OUTPUTS], state_topic, partition)
        places = batches.add_records(records, partition)
        self._records_sent += len(outputs) + len(records)
        await self._producer.begin_transaction()
        bases = await self._send(batches, outputs)
        ours = {target for target, _, _ in places}
        sent = ((*target, offsets[0]) for target, offsets in bases.items() if target not in ours)
        self._ending = Ending(asked=True, output=next(sent, None))
        await self._producer.commit_transaction()
        return tuple(bases[target][batch] + index for target, batch, index in places)

    async def _send(self, batches: TransactionBatches, outputs: Sequence[Output]) -> dict[TopicPartition, list[int]]:
        """Send everything and check every answer. Returns the base offsets, batch by batch.

        Raises:
            ClockRefused: a broker refused records for their time, in a topic where all have the time of this machine.
        """
        pending: list[tuple[TopicPartition, asyncio.Future[RecordMetadata | None]]] = []
        runs = batches.runs
        bases: dict[TopicPartition, list[int]] = {target: [] for target in runs}
        try:
            # One batch per partition at a time: queueing a second one waits for the first.
            for row in zip_longest(*runs.values()):
                for target, batch in zip(runs, row, strict=True):
                    if batch is not None:
                        sent = await self._producer.send_batch(batch, target.topic, partition=target.partition)
                        pending.append((target, sent))
            for target, sent in pending:
                bases[target].append(await self._acknowledged(target, sent))
        except RefusedRecord as error:
            if isinstance(error.__cause__, InvalidTimestampError):
                await asyncio.wait([sent for _, sent in pending])
                refused = {each.topic for each, sent in pending if isinstance(sent.exception(), InvalidTimestampError)}
                timed_by_app = {each.topic for each in outputs if each.timestamp_ms is not None}
                if stamped_here := refused - timed_by_app:
                    raise clock_refused(min(stamped_here), error.__cause__) from error
            raise
        finally:
            for _, sent in pending:  # one that failed and is awaited by nobody would be reported as an error at exit
                sent.add_done_callback(lambda done: done.cancelled() or done.exception())
        return bases

    async def _acknowledged(self, target: TopicPartition, sent: asyncio.Future[RecordMetadata | None]) -> int:
        try:
            answer = await sent
        except CLIENT_ERRORS as error:
            topic, ours = target.topic, self.transactional_id
            raise commit_error(error, ours, topic, self._settings) from error
        # A duplicate sequence is answered with -1: stored at an unknown offset.
        if answer is None or answer.offset < 0 or answer.partition != target.partition:
            raise CommitInDoubt(
                f"a batch for {target} was answered with {answer}", transactional_id=self.transactional_id
            )
        return int(answer.offset)

    async def _learn(self, topics: Collection[str]) -> None:
        """Ask for limits and partition counts before the first record for a topic is batched."""
        for topic, limit in (await self._limits_of(topics)).items():
            partitions = await self._producer.client._wait_on_metadata(topic)
            self._shapes[topic] = TopicShape(len(partitions), min(limit, self._batch_bytes), limit)

    def _watch_requests(self) -> None:
        """Notice each request of a transaction that was sent but ended without an answer."""
        client = self._producer.client
        send = client.send

        async def watched(node_id: int, request: Any, **keywords: Any) -> Any:
            try:
                return await send(node_id, request, **keywords)
            except NodeNotReadyError:
                raise  # nothing was sent
            except BaseException:
                self._unanswered = self._unanswered or isinstance(request, _WATCHED)
                raise

        client.send = watched


def clock_refused(topic: str, error: BaseException) -> ClockRefused:
    """Make the error for records with the time of writing, which a broker refused for their time."""
    return ClockRefused(
        f"the broker refuses records for topic {topic}: {described(error)}: they have the time of this machine",
        hint="correct the clock of this machine, or of the brokers: `timedatectl` shows whether one is synchronised;"
        f" or, if all clocks are right, lift the topic's limits: `{lifted_times(topic)}`",
        topic=topic,
    )
