"""One transaction per batch: outputs, changes, and last the increment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.chain import Chain
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.tasks import ended
from snapreplay.service.ports import LogRecord, Producer
from snapreplay.snapshots.errors import RetryableError
from snapreplay.snapshots.format.changes import split_changes
from snapreplay.snapshots.format.envelope import Kind, encode, headers_for, headers_of
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.program.fold import Applied
from snapreplay.snapshots.state.contract import Store


class ProducerSpent(RetryableError):
    """The commit was answered OK, but the producer must not start another transaction."""


@dataclass(frozen=True)
class Committed:
    """A batch whose transaction was answered OK."""

    applied: Applied | None
    increment: Increment
    seconds: float


@dataclass(frozen=True)
class _Pending:
    applied: Applied | None
    increment: Increment
    began: float
    task: asyncio.Task[tuple[int, ...]]


class Committer:
    """Extends the chain. At most one transaction is under way; its batch is sealed in the store until then.

    Attributes:
        chain: up to the last increment whose commit was answered OK.
        doubtful: the increment whose commit was not. Its batch stays sealed: the log will say what became of it.
    """

    def __init__(self, context: Context, store: Store, producer: Producer, chain: Chain) -> None:
        self._context = context
        self._store = store
        self._producer = producer
        self._pending: _Pending | None = None
        self.chain = chain
        self.doubtful: Increment | None = None

    @property
    def idle(self) -> bool:
        """No transaction is under way (an answered one that was not settled counts as under way)."""
        return self._pending is None

    @property
    def answered(self) -> bool:
        """There is something to settle without waiting."""
        return self._pending is not None and self._pending.task.done()

    def start(self, applied: Applied | None) -> None:
        """Begin the transaction of a sealed batch; None commits an empty increment (a pointer)."""
        if self._pending is not None:
            raise AssertionError("the previous transaction is not settled")
        records, increment = self._records(applied)
        outputs = (*applied.outputs, *applied.dead_letters) if applied else ()
        loop = asyncio.get_running_loop()
        commit = self._producer.commit(self._context.partition, outputs, records)
        self._pending = _Pending(applied, increment, loop.time(), loop.create_task(commit))

    async def settle(self) -> Committed | None:
        """Wait for the transaction under way and merge its batch; None when there was none.

        Raises:
            Fenced, CommitInDoubt, RefusedRecord: recover; this is the end of the committer.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        try:
            offsets = await pending.task
        except BaseException:
            pending.task.cancel()
            self.doubtful = pending.increment
            raise
        if pending.applied is not None:
            self._store.merge()
        self.chain = self.chain.committed(pending.increment, offsets[-1])
        seconds = asyncio.get_running_loop().time() - pending.began
        return Committed(pending.applied, pending.increment, seconds)

    def check_producer(self) -> None:
        """After each transaction.

        Raises:
            ProducerSpent: before the next one a new producer must fence this one.
        """
        if self._producer.needs_renewal:
            raise ProducerSpent(
                f"partition {self._context.partition}: a request of the last transaction ended without an"
                " answer; its late copy must not reach the next one (KAFKA-17754)"
            )

    async def discard(self) -> None:
        """Give up: the transaction under way, if any, is in doubt; the log will say."""
        pending, self._pending = self._pending, None
        await self._producer.discard()
        if pending is not None:
            self.doubtful = pending.increment
            await ended(pending.task)

    def _records(self, applied: Applied | None) -> tuple[list[LogRecord], Increment]:
        topic = self._context.increments.topic
        values: list[bytes] = []
        ref = None
        if applied is not None and self._store.keeps_changes and self._context.settings.changes:
            batch = self.chain.batch + 1
            values, ref = split_changes(batch, applied.sealed.changes)
        increment = self.chain.next_increment(applied, ref, wall_ms())
        headers = headers_for(Kind.CHANGES)
        records = [LogRecord(topic, value, headers=headers) for value in values]
        records.append(LogRecord(topic, encode(increment), headers=headers_of(increment)))
        return records, increment
