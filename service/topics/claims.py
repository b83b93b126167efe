"""The claims of others on the partition since ours, by the log."""

from __future__ import annotations

from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.core.search import SearchWindow
from snapreplay.service.ports import Bounds, Reader
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.increments import last_in_window, newer_claim
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.stale_leader import Patience
from snapreplay.snapshots.format.records import NO_OFFSET, Claim


async def newer_owner(
    context: Context, owner_epoch: int, known_offset: int = NO_OFFSET
) -> Claim | None:
    """Return the newest claim after ours, None when nobody claimed since. A claim that was trimmed meanwhile counts,
    too: what its owner committed has its epoch.

    A fence and a transaction timeout raise the same error; only a newer claim tells them apart. A leader that does not
    even know our own claim is stale: others are asked.

    Args:
        known_offset: another log says that something was committed here after our claim. A leader that does not know
            it is stale, too; if no other one is found in time, that record is gone.

    Raises:
        Unreachable, ReadStalled, OffsetBeyondEnd: the log could not be asked.
    """
    patience = Patience()
    while True:
        late = patience.is_over
        try:
            newer, end_offset = await _newer_owner(context, owner_epoch)
            if newer is not None or end_offset > known_offset or late:
                return newer
        except OffsetBeyondEnd:
            if late:
                raise
        await patience.pause()


async def _newer_owner(context: Context, owner_epoch: int) -> tuple[Claim | None, int]:
    """Find the newest claim after ours; also return where the log ends, according to the leader that was asked."""
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        if bounds.end_offset <= owner_epoch:
            raise OffsetBeyondEnd(
                f"{context.increments} ends at {bounds.end_offset}, but our claim is at {owner_epoch}: the leader is"
                " stale, or the log is shorter than it was",
                end_offset=bounds.end_offset,
                owner_epoch=owner_epoch,
            )
        after = max(owner_epoch, bounds.start_offset - 1)
        if bounds.end_offset <= after + 1:
            return None, bounds.end_offset
        newer = await newer_claim(reader, context.increments, after, bounds.end_offset)
        if newer is None and bounds.start_offset > owner_epoch:
            newer = await _trimmed_claim(context, reader, owner_epoch, bounds)
        return newer, bounds.end_offset


async def _trimmed_claim(
    context: Context, reader: Reader, owner_epoch: int, bounds: Bounds
) -> Claim | None:
    window = SearchWindow(bounds.start_offset, bounds.end_offset, 0)
    found = await last_in_window(reader, context.increments, window)
    if found is None or found.increment.owner_epoch <= owner_epoch:
        return None
    expected = context.expected
    return Claim(
        claim_id="",
        app_id=expected.app_id,
        cluster_id=expected.cluster_id,
        process_id="",
        instance_id="",
        host="unknown (its claim is trimmed)",
        pid=0,
        started_at_ms=0,
    )
