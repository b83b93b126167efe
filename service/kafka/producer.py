"""The transactional producer of one partition: `start()` is the fence, each batch is one transaction.

A transaction is one coroutine: add the partitions, write to all leaders, check each answer, end it. It is used until
the first doubt, then discarded. After a request that ended without an answer it is discarded, too, even if its
repetition succeeded: the old copy could decide a later transaction (KAFKA-17754, reproduced on 4.3.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from aiokafka.errors import InvalidTimestampError, KafkaError

from snapreplay import engine
from snapreplay.app.record import Output, counted_topics
from snapreplay.errors import SnapreplayError, described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import ClockRefused, CommitInDoubt, RefusedRecord
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import Ending
from snapreplay.service.kafka.batching import CODECS, Batches, TopicShape
from snapreplay.service.kafka.config import batch_bytes_max
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, commit_error, lifted_times, translated
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.kafka.sink import BatchesRefused, Sink
from snapreplay.service.ports import LogRecord, TopicPartition

AT_ONCE_OUTPUTS = 1024 if engine.compiled is None else 16_384
"""What `add_outputs` is given at a time: it takes one millisecond, two by the engine. Each time the engine begins new
batches, of which a partition takes one after the other."""

SEQUENCE_RECORDS_MAX = 1_000_000_000
"""Sequence numbers end at 2^31 records per partition."""

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
        self._records_sent = 0
        self._discarded = False
        self._ending = Ending(asked=False)
        self._sink = Sink(settings, self._shared, transactional_id)

    @property
    def needs_renewal(self) -> bool:
        """Whether the next transaction needs a new producer, although the last one ended with OK."""
        return self._sink.unanswered or self._records_sent > SEQUENCE_RECORDS_MAX or self._discarded

    @property
    def lineage(self) -> Lineage:
        return Lineage(self._sink.producer_id, self._sink.epoch)

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
        async with translated(doing, asked, give_up=self._give_up), self._sink.within(deadline_s):
            await self._sink.start()

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
            async with self._sink.within(self._commit_s):
                return await self._transaction(partition, outputs, records)
        except BaseException as error:
            await self.discard()
            is_clients = isinstance(error, CLIENT_ERRORS)
            ended = commit_error(error, self.transactional_id, settings=self._settings) if is_clients else error
            if isinstance(ended, RefusedRecord):
                self._forget_limits()
            if is_clients:
                raise ended from error
            raise

    async def _give_up(self) -> None:
        self._shared.distrust()
        await self.discard()

    async def discard(self) -> None:
        self._discarded = True
        await self._sink.close()

    async def _transaction(
        self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]
    ) -> tuple[int, ...]:
        state_topic = records[-1].topic
        if unknown := (counted_topics(outputs).keys() | {r.topic for r in records}) - self._shapes.keys():
            await self._learn(unknown)
        batches = Batches(self._shapes, CODECS[self._settings.kafka.get("compression.type")])
        for start in range(0, len(outputs), AT_ONCE_OUTPUTS):
            if start:
                await asyncio.sleep(0)
            batches.add_outputs(outputs[start : start + AT_ONCE_OUTPUTS], state_topic, partition)
        places = batches.add_records(records, partition)
        self._records_sent += len(outputs) + len(records)
        bases = await self._send(batches, outputs)
        ours = {target for target, _, _ in places}
        sent = ((*target, offsets[0]) for target, offsets in bases.items() if target not in ours)
        self._ending = Ending(asked=True, output=next(sent, None))
        await self._sink.end(commit=True)
        return tuple(bases[target][batch] + index for target, batch, index in places)

    async def _send(self, batches: Batches, outputs: Sequence[Output]) -> dict[TopicPartition, list[int]]:
        """Begin the transaction, and write everything. Returns the base offsets, batch by batch.

        Raises:
            ClockRefused: a broker refused records for their time, in a topic where all have the time of this machine.
            CommitInDoubt: the offset of a batch is unknown.
        """
        runs = batches.runs
        await self._sink.begin(runs)
        try:
            bases = await self._sink.write(runs)
        except BatchesRefused as refused:
            raise self._refusal(refused.errors, outputs) from None
        for target, offsets in bases.items():
            if min(offsets) < 0:
                raise CommitInDoubt(
                    f"a batch for {target} was answered as a duplicate, without its offset",
                    transactional_id=self.transactional_id,
                )
        return bases

    def _refusal(self, errors: Mapping[TopicPartition, KafkaError], outputs: Sequence[Output]) -> SnapreplayError:
        target, error = next(iter(errors.items()))
        if isinstance(error, InvalidTimestampError):
            refused = {each.topic for each, why in errors.items() if isinstance(why, InvalidTimestampError)}
            timed_by_app = {each.topic for each in outputs if each.timestamp_ms is not None}
            if stamped_here := refused - timed_by_app:
                return clock_refused(min(stamped_here), error)
        return commit_error(error, self.transactional_id, target.topic, self._settings)

    async def _learn(self, topics: Collection[str]) -> None:
        """Ask for limits and partition counts before the first record for a topic is batched."""
        for topic, limit in (await self._limits_of(topics)).items():
            count = await self._sink.partition_count(topic)
            self._shapes[topic] = TopicShape(count, min(limit, batch_bytes_max(self._settings)), limit)


def clock_refused(topic: str, error: BaseException) -> ClockRefused:
    """Make the error for records with the time of writing, which a broker refused for their time."""
    return ClockRefused(
        f"the broker refuses records for topic {topic}: {described(error)}: their timestamps are from the clock of this"
        " machine",
        hint="correct the clock of this machine, or of the brokers: `timedatectl` shows whether one is synchronised;"
        f" or, if all clocks are right, lift the topic's limits: `{lifted_times(topic)}`",
        topic=topic,
    )
