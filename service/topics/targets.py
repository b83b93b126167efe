"""The check whether what the last increment and a snapshot point to in the increments topic is there: by kind,
batch, position and digest. A copy of a topic by a tool has no transaction markers, so its records lie at other
offsets than they say."""

from __future__ import annotations

from snapreplay.errors import DamagedError
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.refusals import OffsetsShifted
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.snapshots.format.records import NO_OFFSET, Claim, Increment, Manifest
from snapreplay.snapshots.log.batches import BrokenChain
from snapreplay.snapshots.log.reading import decode_as, is_ours


async def check_last(reader: Reader, log: TopicPartition, last: FoundIncrement) -> None:
    """Compare what the last increment names with what is there. What was trimmed or is damaged says nothing.

    Raises:
        OffsetsShifted: the claim of its owner is not there.
        BrokenChain: the batch before it is not there.
    """
    wrong = await wrong_claim(reader, log, last)
    if wrong is not None:
        raise OffsetsShifted(
            f"{log} offset {last.offset}: {wrong}. The records are not at the offsets where they were written: the"
            " topic was copied with shifted offsets, as a tool does that reads records and writes them again",
            hint="restore the topic from a copy that keeps every offset (of the broker's disks, for example)",
            offset=last.offset,
            batch=last.increment.batch,
        )
    await _check_predecessor(reader, log, last)


async def wrong_claim(reader: Reader, log: TopicPartition, last: FoundIncrement) -> str | None:
    """Return what is where the last increment says that its owner claimed, if it is not that claim."""
    increment, epoch = last.increment, last.increment.owner_epoch
    named = f"batch {increment.batch} says that its owner claimed at offset {epoch}"
    if epoch >= last.offset:
        return f"{named}, which is after it"
    entry = await _entry_known_to(reader, log, last, epoch)
    if entry is None or isinstance(entry, Claim):
        return None
    return f"{named}, but {_described(entry)} is there"


async def _check_predecessor(reader: Reader, log: TopicPartition, last: FoundIncrement) -> None:
    increment, offset = last.increment, last.increment.previous_offset
    if offset in (NO_OFFSET, increment.owner_epoch):  # the genesis, or a new chain began
        return
    entry = await _entry_known_to(reader, log, last, offset)
    batch = entry.batch if isinstance(entry, Increment) else NO_OFFSET
    if entry is None or batch == increment.batch - 1:
        return
    raise BrokenChain(
        f"{log} offset {last.offset}: batch {increment.batch} names offset {offset} as its predecessor, but"
        f" {_described(entry)} is there: this is not the chain that was written",
        expected_batch=increment.batch - 1,
        found_batch=batch,
    )


async def check_snapshot(reader: Reader, log: TopicPartition, manifest: Manifest, last: FoundIncrement) -> None:
    """Compare a snapshot with the increment of its batch. What was trimmed or is damaged says nothing.

    Args:
        last: the last increment of the log, which a stale leader may not know.

    Raises:
        DamagedError: plan without this snapshot.
        OffsetBeyondEnd: the leader does not know the last increment.
    """
    offset = manifest.increment_offset
    entry = await _entry_known_to(reader, log, last, offset)
    named = f"snapshot {manifest.snapshot_id} is of batch {manifest.batch} at offset {offset} of {log}"
    if entry is None or isinstance(entry, Claim):  # of a state that a decision began with
        return
    if not isinstance(entry, Increment) or entry.batch != manifest.batch:
        raise DamagedError(f"{named}, but {_described(entry)} is there")
    if (entry.positions, entry.digest) != (manifest.positions, manifest.digest):
        raise DamagedError(
            f"{named}, whose positions and digest are {entry.positions} and {entry.digest}, but the snapshot has"
            f" {manifest.positions} and {manifest.digest}"
        )


async def _entry_known_to(reader: Reader, log: TopicPartition, last: FoundIncrement, offset: int) -> object:
    """Read as `_entry_at` does. If nothing is there, the leader may be stale.

    Raises:
        OffsetBeyondEnd: the leader does not know the last increment either.
    """
    found = await _entry_at(reader, log, offset)
    if found != b"":
        return found
    bounds = await reader.bounds(log)
    if bounds.end_offset <= last.offset:
        raise OffsetBeyondEnd(
            f"{log} ends at {bounds.end_offset}, but batch {last.increment.batch} was found at offset {last.offset}:"
            " the leader is stale, or the log is shorter than before",
            end_offset=bounds.end_offset,
            offset=last.offset,
        )
    return await _entry_at(reader, log, offset)


async def _entry_at(reader: Reader, log: TopicPartition, offset: int) -> object:
    """Read the record: its bytes if it is foreign, b"" if there is none, None if it is trimmed or damaged."""
    try:
        record = await reader.read_at(log, offset)
        if record is None:
            return b""
        value = record.value or b""
        if not is_ours(value, record.headers):
            return value
        return decode_as(object, value, log, offset)
    except (OffsetTrimmed, DamagedError):
        return None
    except OffsetBeyondEnd:
        return b""


def _described(entry: object) -> str:
    if isinstance(entry, bytes):
        return "a foreign record" if entry else "no record"
    if isinstance(entry, Increment):
        return f"the increment of batch {entry.batch}"
    return f"a record of the kind {type(entry).__name__}"
