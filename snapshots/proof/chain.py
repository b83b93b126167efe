"""The rules between an increment and those before it. Each function gives what does not hold, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from snapreplay.app import names
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
    if before is None or increment.begins_chain:
        return
    if not follows(increment, before.increment.batch, before.offset):
        yield broken_link(increment, before.increment.batch, before.offset)


def broken_ranges(before: Found | None, found: Found) -> Iterator[str]:
    """Tell where a range does not begin where the one before it of its topic ended, the positions are not where they
    end, or are those of other inputs."""
    batch, increment = found.increment.batch, found.increment
    positions = _positions_before(before, increment)
    ends: dict[str, int] = {}
    if positions and positions.keys() != increment.positions.keys() and not increment.changes_inputs:
        others = ", ".join(sorted(positions.keys() ^ increment.positions.keys()))
        yield f"batch {batch} has other inputs than the batch before it, without a decision: {others}"
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
    if increment.begins_chain:
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


def wrong_epoch(found: Found, highest_epoch: int | None, last_claim: int | None, log_start: int) -> Iterator[str]:
    """Tell where an increment does not belong to the newest claim before it. `highest_epoch`: of the increments
    before it."""
    epoch = found.increment.owner_epoch
    if highest_epoch is not None and epoch < highest_epoch:
        yield f"owner epoch {epoch} after epoch {highest_epoch}"
    elif last_claim is not None and last_claim > epoch:
        yield f"written under owner epoch {epoch} after the claim at {last_claim}"
    elif epoch >= log_start and last_claim != epoch:
        yield f"owner epoch {epoch} is not the offset of a claim before it"


class _Rule(NamedTuple):
    """Orphans are those in [start_offset, end_offset) that lie behind a cut, or in front of the first claim with the id
    of another topic. Without a cut `cut_offset` is `end_offset`."""

    start_offset: int
    end_offset: int
    cut_offset: int
    claim_offset: int
    log_id: str


class Orphans:
    """Increments whose predecessors are gone: their owner did not know yet that the topic was created again, or cut. It
    then began a new chain after them, with everything that they say.

    Give it each claim and increment of a partition in order. It keeps a few numbers for each beginning of the chain,
    however many increments follow.
    """

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._claim_offset: int | None = None
        self._start_offset: int | None = None
        self._cut_offset: int | None = None
        self._first_with: dict[str, int] = {}
        """Id of the topic → the first increment that names it, of those in front of the first claim."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def claim(self, offset: int) -> None:
        if self._claim_offset is None:
            self._claim_offset = offset

    def add(self, found: Found) -> None:
        """Judge the next increment."""
        offset, increment = found
        if increment.begun_by_owner:
            self._judge(increment)
        if increment.begins_chain:
            self._start_offset = self._cut_offset = None
            self._first_with = {}
        if self._start_offset is None:
            self._start_offset = offset
        if self._cut_offset is None and increment.previous_offset >= offset:
            self._cut_offset = offset
        if self._claim_offset is None:
            self._first_with.setdefault(_log_id(increment), offset)

    def has(self, found: Found) -> bool:
        for rule in self._rules:
            if rule.start_offset <= found.offset < rule.end_offset:
                is_foreign = found.offset < rule.claim_offset and _log_id(found.increment) != rule.log_id
                return is_foreign or found.offset >= rule.cut_offset
        return False

    def _judge(self, end: Increment) -> None:
        """Judge what lies before `end`: the owner has begun a new chain here."""
        end_offset, log_id = end.owner_epoch, _log_id(end)
        foreign = [first for other, first in self._first_with.items() if other != log_id]
        cut = end_offset if self._cut_offset is None else self._cut_offset
        if self._start_offset is None or min([cut, *foreign]) >= end_offset:
            return
        claim = end_offset if self._claim_offset is None else self._claim_offset
        self._rules.append(_Rule(self._start_offset, end_offset, cut, claim, log_id))


def _log_id(increment: Increment) -> str:
    """Return the id of the increments topic as its owner knew it; "" where the cluster has none."""
    return increment.topic_ids.get(names.increments_topic(increment.origin.app_id), "")
