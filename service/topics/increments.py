"""Reads the increments topic backwards: the last increment, and the newest claim."""

from __future__ import annotations

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError
from snapreplay.service.core.search import FoundIncrement, SearchWindow, windows
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import ChangesRecord, Claim, Increment
from snapreplay.snapshots.log.batches import kind_in, named_kind
from snapreplay.snapshots.log.place import decode_as, is_ours, seals_of


async def last_in_window(
    reader: Reader, log: TopicPartition, window: SearchWindow
) -> FoundIncrement | None:
    """Return the last increment in the window, None when it holds none.

    Raises:
        DamagedError: a record of ours behind the last readable increment cannot be read. It may be the
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
    foreign = sum(_foreign(log, record) for record in reversed(behind))
    if candidate is None:
        return None
    increment = decode_as(Increment, candidate.value or b"", log, candidate.offset)
    return FoundIncrement(increment, candidate.offset, foreign)


async def last_increment(
    reader: Reader, log: TopicPartition, within: Bounds
) -> FoundIncrement | None:
    """Return the last increment within these bounds, None when they hold none. For readers without a claim, or with a
    claim that was seen.

    Raises:
        DamagedError: as `last_in_window`.
    """
    for window in windows(within.end_offset, within.start_offset):
        found = await last_in_window(reader, log, window)
        if found is not None:
            return found
    return None


def _foreign(log: TopicPartition, record: InputRecord) -> bool:
    """Check a record of ours whole: neither a flipped kind nor another record in its place must hide an increment.

    Behind the last increment there are claims only: changes are committed together with theirs.
    """
    value = record.value or b""
    if not is_ours(value, record.headers):
        return True
    entry, named = decode_as(object, value, log, record.offset), named_kind(record)
    if isinstance(entry, ChangesRecord):
        problem = f"changes of batch {entry.batch}, whose increment is gone: the log was cut, or is damaged"
    elif not isinstance(entry, Claim):
        problem = f"a {type(entry).__name__}, not a claim"
    elif named not in {RecordKind.CLAIM, None}:
        problem = f"a claim, but its header says {named}"
    else:
        return False
    raise DamagedError(
        f"{log} offset {record.offset} holds {problem}",
        topic=log.topic,
        partition=log.partition,
        offset=record.offset,
    )


async def newer_claim(
    reader: Reader, log: TopicPartition, after_offset: int, end_offset: int
) -> Claim | None:
    """Return the newest claim in (after_offset, end_offset), None when nobody claimed after us."""
    newest: Claim | None = None
    async for records in reader.read(log, after_offset + 1, end_offset):
        for record in records:
            if kind_in(record, seals_of(log)) is RecordKind.CLAIM:
                newest = decode_as(Claim, record.value or b"", log, record.offset)
    return newest
