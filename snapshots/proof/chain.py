"""The rules between an increment and the one before it. Each function gives what does not hold, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from snapreplay.counted import counted
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import broken_link, follows


class Found(NamedTuple):
    """An increment and its offset in the increments topic."""

    offset: int
    increment: Increment


def bridges(before: Found | None, found: Found, unread: Sequence[int]) -> bool:
    """Say whether the increments at `unread`, which lie between and cannot be read, are those that `found` follows.
    Its digest then shows whether the changes before them are all there."""
    if before is None or not unread:
        return False
    return follows(found.increment, before.increment.batch, before.offset, unread)


def broken_chain(before: Found | None, found: Found) -> Iterator[str]:
    """Tell where batches do not follow each other without a gap, or one does not name the one before it."""
    increment = found.increment
    if before is None or increment.begins_anew:
        return
    if not follows(increment, before.increment.batch, before.offset):
        yield broken_link(increment, before.increment.batch, before.offset)


def broken_ranges(before: Found | None, found: Found) -> Iterator[str]:
    """Tell where a range does not begin where the one before it of its topic ended, or the positions are not where
    they end."""
    batch, increment = found.increment.batch, found.increment
    positions = _positions_before(before, increment)
    ends: dict[str, int] = {}
    for each in increment.ranges:
        expected = ends.get(each.topic, positions.get(each.topic, each.start_offset))
        if each.start_offset != expected or each.end_offset < each.start_offset:
            yield (
                f"batch {batch} covers {each.topic} from {each.start_offset} to {each.end_offset}, but the range before"
                f" it ended at {expected}"
            )
        ends[each.topic] = max(each.end_offset, ends.get(each.topic, each.end_offset))
    for topic, position in increment.positions.items() if positions else ():
        known = [end for end in (positions.get(topic), ends.get(topic)) if end is not None]
        if known and position != max(known):
            yield f"batch {batch} ends {topic} at position {position}, but its ranges end at {max(known)}"


def _positions_before(before: Found | None, increment: Increment) -> Mapping[str, int]:
    """Return the positions before; empty where they are not known."""
    if increment.begins_anew:
        return {}
    if before is not None:
        return before.increment.positions
    return increment.genesis.start_offsets if increment.batch == 0 else {}


def wrong_counts(found: Found) -> Iterator[str]:
    """Tell of records of a range that are neither applied nor skipped."""
    increment = found.increment
    held = sum(each.record_count for each in increment.ranges)
    if increment.record_count > held or (not increment.skipped and increment.record_count != held):
        yield (
            f"batch {increment.batch} applied {counted(increment.record_count, 'record')}, but its ranges hold {held}"
        )


def wrong_epoch(
    found: Found, highest_epoch: int | None, last_claim: int | None, log_start: int
) -> Iterator[str]:
    """Tell where an increment does not belong to the newest claim before it. `highest_epoch`: of the increments
    before it."""
    epoch = found.increment.owner_epoch
    if highest_epoch is not None and epoch < highest_epoch:
        yield f"owner epoch {epoch} after epoch {highest_epoch}"
    elif last_claim is not None and last_claim > epoch:
        yield f"written under owner epoch {epoch} after the claim at {last_claim}"
    elif epoch >= log_start and last_claim != epoch:
        yield f"owner epoch {epoch} is not the offset of a claim before it"
