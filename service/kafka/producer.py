"""The transactional producer of one partition: `start()` is the fence, each batch is one transaction.

It is used until the first doubt, then discarded. aiokafka 0.14.0 has three traps. It commits a transaction with missing
records and says OK, so every answer is checked before the commit is asked for. It waits for ever for absent brokers, so
every wait has our deadline. It repeats an unanswered request silently, and the old copy can decide a later transaction
(KAFKA-17754, reproduced on 4.3.1), so after an unanswered request the producer is discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import aiokafka.producer.sender as aiokafka_sender
from aiokafka.errors import InvalidTimestampError, NodeNotReadyError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from aiokafka.structs import RecordMetadata

from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import ClockRefused, CommitInDoubt, RefusedRecord
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import Ending
from snapreplay.service.kafka.batching import AT_ONCE_OUTPUTS, TopicShape, TransactionBatches
from snapreplay.service.kafka.clients import producer_client
from snapreplay.service.kafka.config import MIB, producer_arguments
from snapreplay.service.kafka.entry import entered
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, commit_error, translated
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.kafka.shutdown import cut_producer
from snapreplay.service.ports import LogRecord, TopicPartition

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
            is_ours = getattr(error, "facts", {}).get("topic") in {each.topic for each in records}
            if is_ours and isinstance(error.__cause__, InvalidTimestampError):
                raise clock_refused(error) from error
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
        bases = await self._send(batches)
        ours = {target for target, _, _ in places}
        sent = ((*target, offsets[0]) for target, offsets in bases.items() if target not in ours)
        self._ending = Ending(asked=True, output=next(sent, None))
        await self._producer.commit_transaction()
        return tuple(bases[target][batch] + index for target, batch, index in places)

    async def _send(self, batches: TransactionBatches) -> dict[TopicPartition, list[int]]:
        """Send everything and check every answer. Returns the base offsets, batch by batch."""
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


def clock_refused(error: BaseException) -> ClockRefused:
    """Make the error for records of ours, which have the time of writing, that a broker refused for their time."""
    return ClockRefused(
        f"{error}: these records have the time of this machine",
        hint="correct the clock of this machine, or of the brokers: `timedatectl` shows whether one is synchronised",
    )
