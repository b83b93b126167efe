"""An ownership for one decision: fence, claim, see the claim, commit, and leave."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from snapreplay.app.record import Output
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds, LogRecord, Producer, Reader
from snapreplay.service.publish.claim import claim_record, reader_behind_claim
from snapreplay.service.publish.fence import fenced, fenced_by_owner
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.witnesses import give_up_later
from snapreplay.service.topics.increments import last_increment
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Increment


@dataclass(frozen=True)
class Owned:
    """A partition that is ours until the block ends.

    Attributes:
        owner_epoch: the offset of our claim.
        log_start_offset: of the increments topic.
    """

    context: Context
    producer: Producer
    owner_epoch: int
    log_start_offset: int
    _reader: Reader

    async def last_increment(self, start_offset: int = 0) -> FoundIncrement | None:
        """Find the last one before our claim, from `start_offset` on; None: there is none. Sees all that was
        committed before our fence: a decision of another process at the same moment, or what a stale leader hid."""
        bounds = Bounds(max(start_offset, self.log_start_offset), self.owner_epoch)
        if bounds.start_offset >= bounds.end_offset:
            return None
        return await last_increment(self._reader, self.context.increments, bounds)

    async def give_up_later(self, begun: Increment) -> None:
        """Call before `begun`, or the one after it, begins the chain; see `witnesses.give_up_later`."""
        context, found = self.context, FoundIncrement(begun, self.owner_epoch)
        await give_up_later(context.cluster, context.app.app_id, context.increments, found)

    async def commit(self, increment: Increment) -> int:
        """Commit it; return its offset."""
        return await commit_increment(self.context, self.producer, increment)


def increment_record(context: Context, increment: Increment) -> LogRecord:
    """Return the record of an increment, with its seal if the app has one."""
    value = context.seals.put_on(encode(increment), context.partition)
    return LogRecord(context.increments.topic, value, headers=headers_of(increment))


async def commit_increment(
    context: Context, producer: Producer, increment: Increment, outputs: Sequence[Output] = ()
) -> int:
    """Commit it in one transaction with `outputs`. Returns its offset.

    Raises:
        Fenced, CommitInDoubt, RefusedRecord: the producer is spent; the log shows what happened.
    """
    record = increment_record(context, increment)
    (offset,) = await producer.commit(context.partition, outputs, (record,))
    return offset


@asynccontextmanager
async def owned(context: Context, *, begins: bool = False) -> AsyncIterator[Owned]:
    """Own the partition for the length of the block.

    Args:
        begins: for `init`, whose fence may be the first one.

    Raises:
        Superseded: another process has claimed the partition since.
        HangingTransaction, ForeignClaim, CommitInDoubt, Unreachable: the claim could not be written or seen.
    """
    producer = await (fenced(context) if begins else fenced_by_owner(context))
    try:
        claim_id = uuid.uuid4().hex
        record = claim_record(context, claim_id)
        (epoch,) = await producer.commit(context.partition, (), (record,))
        async with reader_behind_claim(context, claim_id, epoch) as (reader, seen):
            if seen.newer is not None:
                raise Superseded(seen.newer, context.partition)
            yield Owned(context, producer, epoch, seen.log_start_offset, reader)
    finally:
        await producer.discard()
