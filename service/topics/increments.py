"""Reads the increments topic backwards: the last increment, the newest claim and whether it is another owner's, and the
decisions in the chain, each of which names the one before it."""

from __future__ import annotations

from collections.abc import Callable

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError, Reaction, SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import Decision
from snapreplay.service.core.chain import decided_at
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement, SearchWindow, windows
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import Patience, reading
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRecord, Claim, Increment
from snapreplay.snapshots.log.batches import kind_in, named_kind
from snapreplay.snapshots.log.reading import decode_as, is_ours

SHOWN_MAX = 100  # decisions


async def last_in_window(reader: Reader, log: TopicPartition, window: SearchWindow) -> FoundIncrement | None:
    """Return the last increment in the window, None when it holds none.

    Raises:
        DamagedError: one of our records behind the last readable increment cannot be read. It may be the
            last increment itself, so an older one must not be taken for it.
    """
    candidate: InputRecord | None = None
    behind: list[InputRecord] = []
    async for records in reader.read(log, window.start_offset, window.end_offset):
        for record in records:
            if kind_of(record.value or b"") is RecordKind.INCREMENT:
                candidate, behind = record, []
            else:
                behind.append(record)
    for record in reversed(behind):
        _refuse_damaged(log, record)
    if candidate is None:
        return None
    return FoundIncrement(decode_as(Increment, candidate.value or b"", log, candidate.offset), candidate.offset)


async def last_increment(reader: Reader, log: TopicPartition, within: Bounds | None = None) -> FoundIncrement | None:
    """Return the last increment within these bounds (None: of the log), None when they hold none. For readers without a
    claim, or with a claim that was seen.

    Raises:
        DamagedError: as `last_in_window`.
    """
    if within is None:
        within = await reader.bounds(log)
    for window in windows(within.end_offset, within.start_offset):
        found = await last_in_window(reader, log, window)
        if found is not None:
            return found
    return None


async def last_in_log(context: Context) -> FoundIncrement | None:
    """Find the newest visible increment of a partition, with a reader of its own."""
    async with reading(context.cluster) as reader:
        return await last_increment(reader, context.increments)


def _refuse_damaged(log: TopicPartition, record: InputRecord) -> None:
    """Raise DamagedError if one of our records is not a claim: neither a flipped kind nor another record in its place
    must hide an increment. Changes are committed together with theirs, so behind the last one there are claims only."""
    value = record.value or b""
    if not is_ours(value, record.headers):
        return
    entry, named = decode_as(object, value, log, record.offset), named_kind(record)
    if isinstance(entry, ChangesRecord):
        problem = f"changes of batch {entry.batch}, whose increment is missing: the log was cut, or is damaged"
    elif not isinstance(entry, Claim):
        problem = f"a {type(entry).__name__}, not a claim"
    elif named not in {RecordKind.CLAIM, None}:
        problem = f"a claim, but its header says {named}"
    else:
        return
    raise DamagedError(
        f"{log} offset {record.offset} holds {problem}", topic=log.topic, partition=log.partition, offset=record.offset
    )


async def newer_claim(reader: Reader, log: TopicPartition, after_offset: int, end_offset: int) -> Claim | None:
    """Return the newest claim in (after_offset, end_offset), None if there is none."""
    newest: Claim | None = None
    async for records in reader.read(log, after_offset + 1, end_offset):
        for record in records:
            if kind_in(record) is RecordKind.CLAIM:
                newest = decode_as(Claim, record.value or b"", log, record.offset)
    return newest


async def decisions_of(reader: Reader, log: TopicPartition, last: FoundIncrement) -> tuple[Decision, ...]:
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


async def why_gone(reader: Reader, log: TopicPartition, bounds: Bounds, known: FoundIncrement) -> str | None:
    """Say why an increment that the log had is not in it any more: it has lost its end, even if it has grown since.
    None: it is there. What was trimmed or is damaged shows no lost end."""
    named = f"batch {known.increment.batch}"
    return await _why_another(reader, log, bounds, known.offset, named, lambda entry: entry == known.increment)


async def why_claim_gone(
    reader: Reader, log: TopicPartition, bounds: Bounds, offset: int, process_id: str
) -> str | None:
    """Say as `why_gone` why the claim of a process is not in the log any more."""

    def is_known(entry: object) -> bool:
        return isinstance(entry, Claim) and entry.process_id == process_id

    return await _why_another(reader, log, bounds, offset, "our claim", is_known)


async def _why_another(
    reader: Reader, log: TopicPartition, bounds: Bounds, offset: int, named: str, is_known: Callable[[object], bool]
) -> str | None:
    was = f"{named} was committed at offset {offset}"
    start_offset, end_offset = bounds
    if end_offset <= offset:
        return f"{log} ends at offset {end_offset}, but {was}"
    if start_offset > offset:
        return None
    try:
        records = [each async for found in reader.read(log, offset, offset + 1) for each in found]
        if not records:
            return f"{log} holds no record there any more, but {was}"
        (record,) = records
        if not is_ours(record.value or b"", record.headers):
            return f"{log} holds a foreign record there, but {was}"
        entry = decode_as(object, record.value or b"", log, offset)
    except (OffsetTrimmed, DamagedError):
        return None
    return None if is_known(entry) else f"{log} holds another record of the app there, but {was}"


def decision_of(increment: Increment, offset: int) -> Decision:
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


async def newer_owner(context: Context, owner_epoch: int, known_offset: int = NO_OFFSET) -> Claim | None:
    """Return the newest claim after ours, None if there is none. A claim that was trimmed meanwhile counts,
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


async def raise_superseded(context: Context, owner_epoch: int, error: SnapreplayError) -> None:
    """Raise Superseded if a newer owner has written what caused `error`; otherwise as `newer_owner`."""
    known_offset = error.increment_offset if isinstance(error, LogCut) else NO_OFFSET
    newer = await newer_owner(context, owner_epoch, known_offset)
    if newer is not None:
        raise Superseded(newer, context.partition) from error


async def _newer_owner(context: Context, owner_epoch: int) -> tuple[Claim | None, int]:
    """Find the newest claim after ours; also return where the log ends, according to the leader that was asked."""
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        if bounds.end_offset <= owner_epoch:
            raise OffsetBeyondEnd(
                f"{context.increments} ends at {bounds.end_offset}, but the claim of this process is at {owner_epoch}:"
                " the leader is stale, or the log is shorter than before",
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


async def _trimmed_claim(context: Context, reader: Reader, owner_epoch: int, bounds: Bounds) -> Claim | None:
    found = await last_in_window(reader, context.increments, SearchWindow(*bounds))
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
