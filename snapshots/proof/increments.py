"""The increments topic of one partition: a chain, each batch with its changes, each owner with its claim. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.changes import joined_crc32
from snapreplay.snapshots.format.records import ChangesRecord, Claim, Increment, LogEntry, Pointer
from snapreplay.snapshots.format.seal import OFF, SealRefused, Seals, is_sealed, sha256_of
from snapreplay.snapshots.log.batches import Pending, Step, Unread
from snapreplay.snapshots.log.place import TopicPartition
from snapreplay.snapshots.proof.chain import (
    Found,
    bridges,
    broken_chain,
    broken_ranges,
    wrong_counts,
    wrong_epoch,
)
from snapreplay.snapshots.proof.findings import AuditedPartition, Findings
from snapreplay.snapshots.proof.orphans import Link, Orphans
from snapreplay.snapshots.proof.records import CHANGES, CLAIM, Condition, Judged
from snapreplay.snapshots.proof.report import RecordedDecision
from snapreplay.state.digest import Digest

CLAIMS_MAX = 200
"""Kept of a partition: the newest ones."""

RECENT_BATCHES = 4096
"""Kept, because an owner's pointer names a batch of some seconds ago."""

Batch = tuple[int, Digest | None]
"""Number and digest."""


@dataclass
class Pointed:
    """A pointer, in whichever increments it stands.

    Attributes:
        seen_at: offset of the first one.
        is_newest: the last increment points to it first.
        topic_ids: of the snapshots topic, as these increments know it.
    """

    pointer: Pointer
    seen_at: int
    is_newest: bool = False
    topic_ids: set[str] = field(default_factory=set)


class BatchFold(Protocol):
    """The work that is done with each batch besides."""

    def batch(self, step: Step, decoded: Sequence[LogEntry | None]) -> None:
        """Take the next batch. `decoded`: its changes records."""


class IncrementsProof:
    """Give it each record in order, then `finish`. What it keeps does not grow with the number of increments."""

    def __init__(
        self,
        place: AuditedPartition,
        findings: Findings,
        lost: Orphans | None = None,
        fold: BatchFold | None = None,
        seals: Seals | None = None,
    ) -> None:
        """Take `lost`: increments that lead nowhere: the `orphans` of a first reading. `seals`: see `Logs.seals`."""
        self.counts = dict.fromkeys(("claims", "increments", "changes_records", "input_records"), 0)
        self.foreign_records = 0
        self.orphans = Orphans()
        """As far as this reading shows."""
        self.orphan_count = 0
        """Of those that `lost` names."""
        self.claims: deque[int] = deque(maxlen=CLAIMS_MAX)
        """Offsets."""
        self.first: Found | None = None
        """The first increment that is no orphan."""
        self.last: Found | None = None
        """The last one."""
        self.decisions: list[RecordedDecision] = []
        self.batches: dict[int, Batch] = {}
        """Offset → batch, of the increments that pointers name, as far as they were among the last `RECENT_BATCHES`."""
        self.begun_at: set[int] = set()
        """Owner epochs of the increments with which the chain begins anew."""
        self.bridged: list[int] = []
        """Offsets of increments that cannot be read, where the next one continues the chain."""
        self.pointed: dict[Pointer, Pointed] = {}
        self._place = place
        self._findings = findings
        self._lost = lost or Orphans()
        self._fold = fold
        self._seals = seals or OFF
        self._follows_sealed = False
        self._recent: dict[int, Batch] = {}
        self._highest_epoch: int | None = None
        self._last_claim: int | None = None
        self._pending: Pending[Judged] = Pending()
        self._unread: list[Unread] = []

    def add(self, record: Judged) -> None:
        """Judge the next record of the topic."""
        condition = record.condition
        if condition is Condition.FOREIGN:
            self.foreign_records += 1
            return
        self._findings.of_condition(self._place.increments, record)
        if record.kind == CHANGES:
            self.counts["changes_records"] += 1
        elif record.kind == CLAIM:
            self._claim(record)
        changes = self._pending.add(record.kind, record)
        if changes is None:
            return
        self._in_order(record)
        if isinstance(record.entry, Increment):
            self._increment(Found(record.offset, record.entry), changes)
        else:
            # Only a fold reads the values: a reading without one keeps no changes of a long damaged log.
            values = [each.value for each in changes] if self._fold is not None else []
            error = DamagedError(record.problem or "the increment cannot be read")
            self._unread.append(Unread(record.offset, values, error))

    def finish(self) -> None:
        """Finish once all records have been given."""
        self._nobodys_changes()
        first = self.first
        if first is None:
            self._find("genesis", -1, "no increment, not even the genesis")
        elif (
            self._place.log_start == 0
            and first.increment.batch != 0
            and not first.increment.begins_anew
        ):
            says = f"the log is whole, but its first increment is batch {first.increment.batch}"
            self._find("genesis", first.offset, says)
        self._only_of_this_topic()

    def batch_of(self, found: Found) -> Batch | None:
        """Return what a pointer to this increment must say; None for an orphan."""
        lost = self._lost.has(found.offset, _log_id(found.increment))
        return None if lost else (found.increment.batch, found.increment.digest)

    def _in_order(self, record: Judged) -> None:
        """Check the order; what is refused for its seal is a finding already."""
        if record.condition is not Condition.OK:
            return
        where = f"{self._place.increments}-{self._place.partition} offset {record.offset}"
        try:
            self._seals.check_order(record.value, where, follows_sealed=self._follows_sealed)
        except SealRefused as error:
            self._find("seal", record.offset, error.message)
        self._follows_sealed = is_sealed(record.value)

    def _claim(self, record: Judged) -> None:
        self._nobodys_changes()
        if isinstance(record.entry, Claim):
            self.counts["claims"] += 1
            self.claims.append(record.offset)
            self.orphans.claim(record.offset)
            self._of_this_app(record.offset, record.entry.app_id)
            self._last_claim = record.offset

    def _increment(self, found: Found, changes: list[Judged]) -> None:
        offset, increment = found
        self._of_this_app(offset, increment.origin.app_id)
        self.orphans.add(_link(found))
        if self._lost.has(offset, _log_id(increment)):
            self.orphan_count += 1
            return
        self.first = self.first or found
        self.counts["increments"] += 1
        self.counts["input_records"] += increment.record_count
        self._compare(found, changes)
        self._note(found)
        if self._fold is not None:
            place = TopicPartition(self._place.increments, self._place.partition)
            step = Step(place, *found, [each.value for each in changes], self._unread)
            self._fold.batch(step, [each.entry for each in changes])
        self._unread = []
        self._highest_epoch = max(increment.owner_epoch, self._highest_epoch or 0)
        self.last = found

    def _compare(self, found: Found, changes: list[Judged]) -> None:
        before, epoch = self.last, self._highest_epoch
        start = self._place.log_start
        unread = [each.offset for each in self._unread]
        if bridges(before, found, unread):
            self.bridged += unread
            before = None
        for check, wrong in (
            ("chain", broken_chain(before, found)),
            ("ranges", broken_ranges(before, found)),
            ("ranges", wrong_counts(found)),
            ("epochs", wrong_epoch(found, epoch, self._last_claim, start)),
        ):
            for says in wrong:
                self._find(check, found.offset, says)
        for offset, says in _wrong_changes(found, changes, start):
            self._find("changes", offset, says)

    def _note(self, found: Found) -> None:
        offset, increment = found
        self._remember(found)
        if increment.begins_anew:
            self.begun_at.add(increment.owner_epoch)
        topic_id = increment.topic_ids.get(names.snapshots_topic(increment.origin.app_id), "")
        for pointer in increment.pointers:
            if pointer not in self.pointed:
                self._point(pointer, offset)
            self.pointed[pointer].topic_ids.add(topic_id)
        if increment.decision is not None:
            words = (increment.decision.get(n, "") for n in ("finding", "decided", "reason", "by"))
            self.decisions.append(RecordedDecision(self._place.partition, offset, *words))

    def _remember(self, found: Found) -> None:
        self._recent[found.offset] = found.increment.batch, found.increment.digest
        if len(self._recent) > RECENT_BATCHES:
            del self._recent[next(iter(self._recent))]

    def _point(self, pointer: Pointer, seen_at: int) -> None:
        self.pointed[pointer] = Pointed(pointer, seen_at)
        if (batch := self._recent.get(pointer.increment_offset)) is not None:
            self.batches[pointer.increment_offset] = batch

    def _only_of_this_topic(self) -> None:
        """Leave out pointers into a snapshots topic that was deleted: they lead nowhere, and nobody follows them."""
        if self.last is None:
            return
        last = self.last.increment
        topic_id = last.topic_ids.get(names.snapshots_topic(last.origin.app_id), "")
        self.pointed = {p: each for p, each in self.pointed.items() if topic_id in each.topic_ids}
        for pointer in last.pointers[:1]:
            self.pointed[pointer].is_newest = True

    def _of_this_app(self, offset: int, app_id: str) -> None:
        if app_id != self._place.app_id:
            self._find("origin", offset, f"written by app {app_id}")

    def _nobodys_changes(self) -> None:
        for record in self._pending.changes:
            self._find("changes", record.offset, "changes without an increment after them")

    def _find(self, check: str, offset: int, says: str) -> None:
        self._findings.add(check, self._place.increments, offset, says)


def _link(found: Found) -> Link:
    offset, increment = found
    return Link(
        offset,
        previous_offset=increment.previous_offset,
        owner_epoch=increment.owner_epoch,
        log_id=_log_id(increment),
        begins_anew=increment.begins_anew,
        begun_by_owner=increment.begun_by_owner,
    )


def _log_id(increment: Increment) -> str:
    return increment.topic_ids.get(names.increments_topic(increment.origin.app_id), "")


def _wrong_changes(
    found: Found, changes: list[Judged], log_start: int
) -> Iterator[tuple[int, str]]:
    """Yield (offset, what is wrong) of the changes records directly before an increment."""
    offset, increment = found
    ref = increment.changes
    if ref is not None and increment.previous_offset + 1 >= log_start:
        entries = sum(_entry_count(each) for each in changes)
        crc = joined_crc32([each.value for each in changes])
        if (ref.record_count, ref.entry_count, ref.crc32) != (len(changes), entries, crc):
            yield (
                offset,
                f"batch {increment.batch} names {counted(ref.record_count, 'changes record')},"
                f" {counted(ref.entry_count, 'entry')}, crc32 {ref.crc32:08x}, but before it are {len(changes)},"
                f" {entries}, {crc:08x}",
            )
        if ref.sha256 and sha256_of([each.value for each in changes]) != ref.sha256:
            yield (
                offset,
                f"the changes of batch {increment.batch} do not have the SHA-256 in its seal",
            )
    for each in changes:
        entry = each.entry if isinstance(each.entry, ChangesRecord) else None
        part, batch = (entry.part, entry.batch) if entry is not None else (-1, increment.batch)
        if ref is None or batch != increment.batch or part >= ref.record_count:
            named = "none" if ref is None else counted(ref.record_count, "record")
            yield (
                each.offset,
                f"changes of batch {batch} part {part} before the increment of batch {increment.batch}, which names"
                f" {named}",
            )


def _entry_count(record: Judged) -> int:
    if not isinstance(record.entry, ChangesRecord):
        return 0
    return sum(map(len, record.entry.stores.values()))
