"""One transaction per batch: outputs, changes, and last the increment."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from snapreplay.app.batch import Applied
from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import Output
from snapreplay.errors import RetryableError
from snapreplay.service.clock import wall_ms
from snapreplay.service.core.batch_failures import NO_EVENTS, Events
from snapreplay.service.core.chain import NO_ANCHORS, Chain
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.kafka_errors import CommitInDoubt
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import Ending, RetainedState
from snapreplay.service.core.snapshot_policy import Unpointed
from snapreplay.service.ports import LogRecord, Producer
from snapreplay.service.publish.owned import increment_record
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.snapshots.format.changes import split_changes
from snapreplay.snapshots.format.envelope import RecordKind, headers_for
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.composite import Store

REST_SECONDS_MAX = 0.1  # nothing else is done meanwhile
BUSY_SECONDS = 0.1


class ProducerSpent(RetryableError):
    """The commit succeeded, but the producer must not start another transaction."""


class Committed(Struct, frozen=True):
    """A batch whose transaction was answered OK."""

    applied: Applied | None
    increment: Increment
    seconds: float
    """From the beginning of its transaction to the answer."""
    since: float
    """When its records began to be applied, by the loop's clock."""


@dataclass
class _Pending:
    """A transaction. `is_begun`: its task has run; one that was cancelled before has sent nothing."""

    applied: Applied | None
    increment: Increment
    began: float = 0.0
    since: float = 0.0
    is_begun: bool = False
    task: asyncio.Task[tuple[int, ...]] = field(init=False)

    @property
    def outputs(self) -> Sequence[Output]:
        applied = self.applied
        if applied is None:
            return ()
        return [*applied.outputs, *applied.dead_letters] if applied.dead_letters else applied.outputs


class Doubt(NamedTuple):
    """A batch whose commit was not answered OK, the end of its transaction, and what was due in it."""

    increment: Increment | None = None
    ending: Ending | None = None
    events: Events = NO_EVENTS


class Committer:
    """Extends the chain. At most one transaction is under way; its batch is sealed in the store until then.

    Attributes:
        chain: up to the last increment whose commit was answered OK.
        doubt: the batch whose commit was not. It stays sealed: the log will show what became of it.
        replaced: the newest increment lies in another log than the chain, or in one that was cut.
        last_began: when the last commit that was answered OK began, by the loop's clock; -inf before the first.
        answer_seconds: from the beginning of the last transaction to its answer.
    """

    def __init__(self, context: Context, store: Store, producer: Producer, chain: Chain) -> None:
        self._context = context
        self._store = store
        self._producer = producer
        self._pending: _Pending | None = None
        self.chain = chain
        self.doubt = Doubt()
        self._is_cut = False
        self.replaced: IncrementsReplaced | None = None
        self.last_began = -math.inf
        self.answer_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way, or began a moment ago: they may follow each other."""
        return not self.idle or asyncio.get_running_loop().time() - self.last_began < BUSY_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no transaction is pending. One that has completed is pending until it is settled."""
        return self._pending is None

    @property
    def answered(self) -> bool:
        """Whether the pending transaction has completed."""
        return self._pending is not None and self._pending.task.done()

    def start(
        self, applied: Applied | None, below: Mapping[str, PositionAnchor] = NO_ANCHORS, since: float = 0.0
    ) -> None:
        """Begin the transaction of a sealed batch; None commits an empty increment (a pointer). `below`:
        what its inputs hold directly below its positions. `since`: when its records began to be applied, by the loop's
        clock.

        Raises:
            CommitInDoubt: after `cut`; nothing was sent.
        """
        if self._pending is not None:
            raise AssertionError("the previous transaction is not settled")
        records, increment = self._records(applied, below)
        loop = asyncio.get_running_loop()
        pending = _Pending(applied, increment, loop.time(), since)
        if self._is_cut:
            self._note_doubt(pending)
            raise CommitInDoubt(
                f"batch {increment.batch} was not sent: the increments topic is missing or was replaced"
            )
        pending.task = loop.create_task(self._begin(pending, records))
        self._pending = pending

    async def rest(self, *before_seconds: float) -> bool:
        """Wait for the answer, but end the sum of `before_seconds` before it is expected. A transaction is expected to
        take as long as the last one. Return whether there was anything to wait for."""
        if self._pending is None or self._pending.task.done():
            return False
        under_way = asyncio.get_running_loop().time() - self._pending.began
        seconds = min(self.answer_seconds - under_way - sum(before_seconds), REST_SECONDS_MAX)
        if seconds > 0:
            await asyncio.wait([self._pending.task], timeout=seconds)
        return seconds > 0

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
            self._note_doubt(pending)
            raise
        if pending.applied is not None:
            self._store.merge()
        self._check_offset(pending.increment, offsets[0])
        self.chain = self.chain.committed(pending.increment, offsets[-1])
        self.last_began = pending.began
        return Committed(pending.applied, pending.increment, self.answer_seconds, pending.since)

    def check(self) -> None:
        """Check after each transaction that the next one may begin.

        Raises:
            ProducerSpent: before the next one a new producer must fence this one.
            IncrementsReplaced: it was committed, but not into the log that the chain is in.
        """
        if self.replaced is not None:
            raise self.replaced
        if self._producer.needs_renewal:
            raise ProducerSpent(
                f"partition {self._context.partition}: a request of the last transaction ended without an"
                " answer; its late copy must not reach the next one (KAFKA-17754)"
            )

    async def discard(self) -> None:
        """Give up: a transaction under way is in doubt; the log will show what became of it."""
        pending, self._pending = self._pending, None
        try:
            await self._producer.discard()
            if pending is not None:
                await cancel_and_wait(pending.task)
        finally:
            if pending is not None:
                self._note_doubt(pending)

    @property
    def lineage(self) -> Lineage:
        """The lineage that the fence gave its producer."""
        return self._producer.lineage

    async def cut(self) -> None:
        """Commit no transaction any more: the one under way ends now, in doubt."""
        self._is_cut = True
        await self._producer.discard()

    def kept(self, unpointed: Unpointed) -> RetainedState:
        """Return what the store holds, after `discard`. A doubt does not restart the interval of snapshots."""
        doubt = self.doubt
        return RetainedState(
            self.chain.last,
            self.chain.last_offset,
            doubt.increment,
            fallback_from=self.chain.fallback_from,
            ending=doubt.ending,
            lineage=self._producer.lineage,
            replaced=self.replaced is not None,
            unpointed=unpointed,
        )

    def _check_offset(self, increment: Increment, first_offset: int) -> None:
        """Check by the first record of a transaction that the log has grown: the last one may lie beyond a cut."""
        above = max(self.chain.last_offset, self.chain.owner_epoch)
        if first_offset <= above:
            self.replaced = IncrementsReplaced(
                f"batch {increment.batch} was committed from offset {first_offset} on in {self._context.increments},"
                f" but offset {above} was written before: the log was cut, or is another one",
                offset=first_offset,
                expected_above=above,
            )

    async def _begin(self, pending: _Pending, records: Sequence[LogRecord]) -> tuple[int, ...]:
        pending.is_begun = True
        offsets = await self._producer.commit(self._context.partition, pending.outputs, records)
        self.answer_seconds = asyncio.get_running_loop().time() - pending.began
        return offsets

    def _note_doubt(self, pending: _Pending) -> None:
        """Note a batch in doubt. If nothing of it was sent, the producer speaks of the transaction before."""
        applied, events = pending.applied, NO_EVENTS
        if applied is not None:
            events = Events(applied.timers_count + applied.expired_count, applied.last_timer_id)
        ending = self._producer.ending if pending.is_begun else Ending(asked=False)
        self.doubt = Doubt(pending.increment, ending, events)

    def _records(
        self, applied: Applied | None, below: Mapping[str, PositionAnchor] = NO_ANCHORS
    ) -> tuple[list[LogRecord], Increment]:
        topic = self._context.increments.topic
        values: list[bytes] = []
        ref = None
        if applied is not None and self._context.settings.changelog.enabled:
            batch = self.chain.batch + 1
            values, ref = split_changes(batch, applied.sealed.changes)
        increment = self.chain.next_increment(applied, ref, wall_ms(), below)
        headers = headers_for(RecordKind.CHANGES)
        records = [LogRecord(topic, value, headers=headers) for value in values]
        records.append(increment_record(self._context, increment))
        return records, increment
