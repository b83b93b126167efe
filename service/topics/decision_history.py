"""The decisions in the chain: each increment names the newest one before it."""

from __future__ import annotations

from snapreplay.errors import Reaction, SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import Decision
from snapreplay.service.core.chain import decided_at
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.snapshots.format.records import NO_OFFSET, Increment
from snapreplay.snapshots.log.place import decode_as

SHOWN_MAX = 100


async def decisions_of(
    reader: Reader, log: TopicPartition, last: FoundIncrement
) -> tuple[Decision, ...]:
    """List the decisions, newest first, as far as the log reaches back; at most 100."""
    found: list[Decision] = []
    offset = decided_at(last.increment, last.offset)
    while offset != NO_OFFSET and len(found) < SHOWN_MAX:
        increment = await increment_at(reader, log, offset)
        if increment is None:
            break
        found.append(decision_of(increment, offset))
        # Falls with each step: a forged offset must not lead in circles.
        offset = min(increment.last_decision_offset, offset - 1)
    return tuple(found)


async def increment_at(reader: Reader, log: TopicPartition, offset: int) -> Increment | None:
    """Read an increment; None if it was trimmed or cannot be read: missing history never stops a recovery."""
    try:
        record = await reader.read_at(log, offset)
        return decode_as(Increment, record.value or b"", log, offset) if record else None
    except OffsetTrimmed:
        return None
    except SnapreplayError as error:
        if error.reaction is Reaction.RETRY:
            raise
        return None


def decision_of(increment: Increment, offset: int) -> Decision:
    """Return what the increment at this offset records."""
    said = increment.decision or {}
    return Decision(
        offset=offset,
        batch=increment.batch,
        finding=said.get("finding", ""),
        problem=said.get("problem", ""),
        decided=said.get("decided", ""),
        reason=said.get("reason", ""),
        by=said.get("by", ""),
        at=time_of(increment.written_at_ms),
    )
