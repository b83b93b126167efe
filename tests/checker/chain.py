"""T-ZengLiang as a chain: one owner after the other, one batch after the other, each where the last one ended."""

import zlib
from collections.abc import Iterable, Iterator

from tests.checker import wire
from tests.checker.verdict import Check, Verdict

KEPT_MIN = 2
"""Snapshots that an owner keeps at least, with any settings."""


class Chain:
    """One partition's committed claims, changes and increments, in order.

    Attributes:
        last: the newest increment so far, at `last_offset`; None before the first.
        pending: changes since, each with the value it was decoded from.
    """

    def __init__(self, app_id: str, where: str, log_start: int, verdict: Verdict) -> None:
        self.last: wire.Increment | None = None
        self.last_offset = -1
        self.pending: list[tuple[wire.Changes, bytes]] = []
        self._app_id = app_id
        self._where = where
        self._log_start = log_start
        self._verdict = verdict
        self._epoch = -1
        self._increments, self._snapshots = f"{app_id}-increments", f"{app_id}-snapshots"
        self._orphans: list[tuple[int, wire.Increment]] = []

    def claim(self, offset: int, claim: wire.Claim) -> None:
        if claim.app_id != self._app_id:
            self._add(Check.FENCE, offset, f"claim of app {claim.app_id!r}")
        self._drop_pending(offset, "a claim")
        self._epoch = offset

    def changes(self, changes: wire.Changes, value: bytes) -> None:
        self.pending.append((changes, value))

    def is_orphan(self, offset: int, found: wire.Increment) -> bool:
        """Say whether it leads nowhere, since its owner did not know yet that the log was made again, or cut. That
        it does not know must be said behind it, by an owner that begins a new chain."""
        if found.begins_chain or found.batch == 0:
            return False
        fresh = self._log_start == 0 and self._epoch < 0
        if not fresh and not self._orphans and found.previous_offset < offset:
            return False
        self._orphans.append((offset, found))
        self.pending = []
        return True

    def increment(self, offset: int, found: wire.Increment) -> list[wire.Changes]:
        """Judge it as the next one of the chain; its changes, intact or not."""
        self._end_orphans(found if found.begun_by_owner else None)
        problems = [
            *((Check.FENCE, what) for what in self._of_owner(offset, found)),
            *((Check.CHAIN, what) for what in self._of_link(found)),
            *((Check.CHAIN, what) for what in self._of_schema(found)),
            *((Check.CHAIN, what) for what in self._of_ranges(found)),
            *((Check.CHAIN, what) for what in self._of_pointers(offset, found)),
            *((Check.CHAIN, what) for what in self._of_changes(found)),
            *((Check.ORDER, what) for what in self._of_positions(found)),
            *((Check.ORDER, what) for what in self._of_turn(found)),
        ]
        for check, what in problems:
            self._add(check, offset, f"batch {found.batch}: {what}")
        changes = [each for each, _ in self.pending]
        self.pending = []
        self.last, self.last_offset = found, offset
        return changes

    def end(self) -> None:
        self._end_orphans(None)
        self._drop_pending(self.last_offset + 1, "the end of the log")

    def _of_owner(self, offset: int, found: wire.Increment) -> Iterator[str]:
        epoch = found.owner_epoch
        if found.origin.app_id != self._app_id:
            yield f"written by app {found.origin.app_id!r}"
        if epoch >= offset:
            yield f"owner epoch {epoch} lies behind it"
        if self.last is not None and epoch < self.last.owner_epoch:
            yield f"owner epoch {epoch} after {self.last.owner_epoch}"
        if self._epoch >= 0 and epoch < self._epoch:
            yield f"of owner epoch {epoch}, after the claim at {self._epoch}"
        elif epoch != self._epoch and epoch >= self._log_start:
            yield f"its owner's claim at {epoch} is not there"

    def _of_link(self, found: wire.Increment) -> Iterator[str]:
        if found.begins_chain:
            return
        last = self.last
        if last is None:
            if found.batch > 0 and self._log_start == 0:
                yield "the log begins with it, there is no genesis"
            if found.batch == 0 and (found.previous_offset != -1 or found.ranges or found.pointers):
                yield "a genesis with a past"
            if found.batch == 0 and found.positions != found.genesis.start_offsets:
                yield f"a genesis at {found.positions}, which begins at {found.genesis.start_offsets}"
            return
        if found.batch != last.batch + 1:
            yield f"after batch {last.batch} at {self.last_offset}"
        if found.previous_offset != self.last_offset:
            yield f"its predecessor is at {found.previous_offset}, the one before it at {self.last_offset}: a fork"
        yield from self._of_genesis(last, found)

    def _of_schema(self, found: wire.Increment) -> Iterator[str]:
        before = found.origin.schema_version if self.last is None else self.last.origin.schema_version
        now = found.origin.schema_version
        if (now <= before) if found.upgrades and self.last is not None else (now != before):
            yield f"its schema_version is {now}, before it was {before}, and its decision is {found.decision}"

    def _of_genesis(self, last: wire.Increment, found: wire.Increment) -> Iterator[str]:
        if found.changes_inputs:
            yield from self._of_inputs(last, found)
        elif found.genesis.start_offsets != last.genesis.start_offsets:
            yield f"its genesis began at {found.genesis.start_offsets}, before it was {last.genesis.start_offsets}"
        elif found.positions.keys() != last.positions.keys():
            yield f"it has the inputs {sorted(found.positions)}, before they were {sorted(last.positions)}"
        if found.decision is not None and not found.changes_inputs:
            yield f"a decision in the chain: {found.decision}"

    def _of_inputs(self, last: wire.Increment, found: wire.Increment) -> Iterator[str]:
        """Other inputs, and nothing else: the state, what leads to it and the place in all other inputs stay."""
        self._verdict.counts["changes of inputs"] += 1
        begun, before = found.genesis.start_offsets, last.genesis.start_offsets
        if found.happened or found.digest != last.digest or found.store_digests != last.store_digests:
            yield "it changes inputs, and more"
        if begun.keys() != found.positions.keys() or begun.keys() == before.keys():
            yield f"it changes inputs from {sorted(before)} to {sorted(begun)}, at {found.positions}"
        for topic in begun.keys() & before.keys():
            if (begun[topic], found.positions[topic]) != (before[topic], last.positions[topic]):
                yield f"it changes the place in {topic}"

    def _of_ranges(self, found: wire.Increment) -> Iterator[str]:
        """Each range begins where the last one of its topic ended, and the positions are where they end."""
        known = self.last is not None and not found.begins_chain
        reached = dict(self.last.positions) if self.last is not None and known else {}
        for each in found.ranges:
            before = reached.get(each.topic)
            if each.start >= each.end:
                yield f"empty range {each}"
            if before is not None and each.start != before:
                yield f"range {each} begins not at {before}, where the last one ended"
            reached[each.topic] = each.end
        for topic, position in found.positions.items():
            if topic in found.position_anchors and not position:
                yield f"{found.position_anchors[topic]} below position 0 of {topic}"
            if reached.get(topic, position) != position:
                yield f"position {position} of {topic}, its ranges end at {reached[topic]}"
        applied = sum(each.records for each in found.ranges) - found.record_count
        skipped = sum(each.end - each.start for each in found.skipped)
        if not 0 <= applied <= skipped:
            yield f"{found.record_count} records applied of ranges {found.ranges}, {skipped} offsets skipped"

    def _of_positions(self, found: wire.Increment) -> Iterator[str]:
        if self.last is None or found.begins_chain:
            return
        for topic, before in self.last.positions.items():
            if topic not in found.positions and found.changes_inputs:
                continue
            if found.positions.get(topic, -1) < before:
                yield f"position of {topic} falls from {before} to {found.positions.get(topic)}"

    def _of_turn(self, found: wire.Increment) -> Iterator[str]:
        """A record whose turn has begun is the next one of all, for every owner."""
        if self.last is None or found.begins_chain:
            return
        begun = self.last.begun_input
        if found.changes_inputs and begun not in found.positions:
            begun = None
        first = next((each.topic for each in found.ranges if each.records), None)
        if begun is not None:
            self._verdict.counts["batches after a turn that had begun"] += 1
        if begun is not None and first not in (None, begun):
            yield f"begins with a record of {first}, but the turn of one of {begun} had begun"
        if first is None and not found.fired_count and found.begun_input != begun:
            yield f"has no record, and the turn of {begun} became that of {found.begun_input}"

    def _of_pointers(self, offset: int, found: wire.Increment) -> Iterator[str]:
        """Those of the predecessor, and at most one new one in front."""
        if any(each.increment_offset >= offset for each in found.pointers):
            yield "it points to a snapshot of a later batch"
        if self.last is None or found.begins_chain:
            return
        same = self._id(self.last, self._snapshots) == self._id(found, self._snapshots)
        before, now = self.last.pointers if same else [], found.pointers
        new = bool(now) and now[0] not in before
        kept = now == before[: len(now)] and len(now) >= min(len(before), KEPT_MIN)
        if not kept and not (new and now[1:] == before[: len(now) - 1]):
            yield f"pointers {_names(now)} do not follow from {_names(before)}"

    def _of_changes(self, found: wire.Increment) -> Iterator[str]:
        ref = found.changes
        if self.last is None and self._log_start > 0:
            return  # they may be trimmed: the retention floor is an increment
        if ref is None:
            if self.pending:
                yield f"{len(self.pending)} changes records before it, it speaks of none"
            return
        checksum = 0
        for part, (changes, value) in enumerate(self.pending):
            checksum = zlib.crc32(value, checksum)
            if (changes.batch, changes.part) != (found.batch, part):
                yield f"changes of batch {changes.batch} part {changes.part} before it at place {part}"
        entries = sum(len(each) for changes, _ in self.pending for each in changes.stores.values())
        seen = wire.ChangesRef(len(self.pending), entries, checksum)
        if seen != ref:
            yield f"{seen} before it, it speaks of {ref}"

    def _end_orphans(self, successor: wire.Increment | None) -> None:
        """`successor`: what the owner began the chain with behind them."""
        for offset, found in self._orphans:
            here = self._id(found, self._increments)
            moved = successor is not None and here != self._id(successor, self._increments)
            behind = successor is not None and offset < successor.owner_epoch
            if not behind or not (moved or self._is_behind_a_cut):
                self._add(Check.CHAIN, offset, f"batch {found.batch}: follows from nothing here")
            else:
                self._verdict.counts["orphaned increments"] += 1
        self._orphans = []

    @property
    def _is_behind_a_cut(self) -> bool:
        offset, first = self._orphans[0]
        return first.previous_offset >= offset

    def _id(self, increment: wire.Increment, topic: str) -> str:
        return increment.topic_ids.get(topic, "")

    def _drop_pending(self, offset: int, what: str) -> None:
        if self.pending:
            self._add(Check.ATOMICITY, offset, f"{what} follows changes that have no increment")
        self.pending = []

    def _add(self, check: Check, offset: int, what: str) -> None:
        self._verdict.add(check, f"{self._where}-{offset}", what)


def _names(pointers: Iterable[wire.Pointer]) -> list[str]:
    return [f"{each.snapshot_id}@{each.manifest_offset}" for each in pointers]
