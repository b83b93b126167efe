"""The increments topic of one partition: a chain, each batch with its changes, each owner with its claim; and the state
after each batch, from the state before it and its changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.snapshots.format.changes import joined_crc32
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import ChangesRecord, Claim, Increment, LogEntry, Manifest, Pointer
from snapreplay.snapshots.log.batches import ChangesLost, Pending, Step, Unread, apply_changes
from snapreplay.snapshots.log.reading import TopicPartition
from snapreplay.snapshots.proof.chain import (
    Found,
    Orphans,
    bridges,
    broken_chain,
    broken_ranges,
    wrong_counts,
    wrong_epoch,
)
from snapreplay.snapshots.proof.records import Condition, Judged, Logs, judge
from snapreplay.snapshots.proof.report import AuditedPartition, Findings, RecordedDecision
from snapreplay.snapshots.proof.state import Entries, entries_of
from snapreplay.state.digest import Digest, wrong_stores
from snapreplay.state.steps import all_of

RECENT_BATCHES = 4096
"""Kept, because an owner's pointer names a batch of some seconds ago."""

Batch = tuple[int, Digest]
"""Number and digest."""


class Pointed(Struct):
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


class Folding:
    """Given each batch in order. Knows the state from the genesis or from the first whole snapshot on.

    After a wrong digest it knows nothing until the next snapshot: all later digests would be wrong as well.
    """

    def __init__(
        self, place: AuditedPartition, findings: Findings, manifests: Mapping[int, Manifest], logs: Logs
    ) -> None:
        """Take `manifests`: by offset, of the snapshots that are whole; their entries are read from `logs`."""
        self.batches_proven = 0
        self.changes_folded = 0
        self._place = place
        self._findings = findings
        self._manifests = manifests
        self._offsets = {m.increment_offset: offset for offset, m in sorted(manifests.items())}
        self._logs = logs
        self.state: Entries | None = None
        """The state after the last batch; None where it is not known."""

    def batch(self, step: Step, decoded: Sequence[LogEntry | None]) -> None:
        """Take the next batch. `decoded`: its changes records."""
        increment, found = step.increment, Found(step.offset, step.increment)
        if increment.begins_chain:
            self.state = None
            for pointer in increment.pointers[:1]:
                self.state = self._loaded(pointer.manifest_offset)
        elif self.state is not None:
            self._fold(self.state, step, decoded)
        elif increment.batch == 0:
            self.state = Entries()
        else:
            self.state = self._snapshot_of(found)
        self._compare(found)

    def _fold(self, state: Entries, step: Step, decoded: Sequence[LogEntry | None]) -> None:
        increment = step.increment
        try:
            all_of(apply_changes(step, state, decoded))
            self.changes_folded += increment.changes.entry_count if increment.changes else 0
        except ChangesLost:
            self.state = self._snapshot_of(Found(step.offset, increment))
        except SnapreplayError:
            self.state = None  # which record it is stands among the findings already

    def _compare(self, found: Found) -> None:
        increment = found.increment
        if self.state is None:
            return
        found_digests = self.state.digest, self.state.store_digests
        if found_digests == (increment.digest, increment.store_digests):
            self.batches_proven += 1
            return
        self._findings.add(
            "batch_digest",
            self._place.increments,
            found.offset,
            f"after batch {increment.batch} the state has digest {self.state.digest}, but {increment.digest} was"
            f" recorded{wrong_stores(increment.store_digests, self.state.store_digests)}",
        )
        self.state = None

    def _snapshot_of(self, found: Found) -> Entries | None:
        """Find the snapshot of an increment; an offset alone is no identity: in a topic that was created again
        another increment has it."""
        offset = self._offsets.get(found.offset, -1)
        manifest = self._manifests.get(offset)
        increment = found.increment
        if manifest is None or (manifest.batch, manifest.digest) != (increment.batch, increment.digest):
            return None
        return self._loaded(offset)

    def _loaded(self, manifest_offset: int) -> Entries | None:
        manifest = self._manifests.get(manifest_offset)
        if manifest is None:
            return None  # why not stands among the findings already
        try:
            return entries_of(self._logs, manifest)
        except DamagedError as error:
            self._findings.add("load", self._place.snapshots, manifest_offset, error.message)
            return None


class IncrementsProof:
    """Give it each record in order, then `finish`. What it keeps does not grow with the number of increments."""

    def __init__(
        self, place: AuditedPartition, findings: Findings, lost: Orphans | None = None, folding: Folding | None = None
    ) -> None:
        """Take `lost`: increments that lead nowhere: the `orphans` of a first reading."""
        self.counts = dict.fromkeys(("claims", "increments", "changes_records", "input_records"), 0)
        self.foreign_records = 0
        self.orphans = Orphans()
        """As far as this reading shows."""
        self.orphan_count = 0
        """Of those that `lost` names."""
        self.first: Found | None = None
        """The first increment that is no orphan."""
        self.last: Found | None = None
        """The last one."""
        self.decisions: list[RecordedDecision] = []
        self.retired: set[tuple[str, str]] = set()
        """Inputs that were retired, each with the id that its topic had."""
        self.batches: dict[int, Batch] = {}
        """Offset → batch, of the increments that pointers name, as far as they were among the last `RECENT_BATCHES`."""
        self.begun_at: set[int] = set()
        """Owner epochs of the increments that begin a new chain."""
        self.bridged: list[int] = []
        """Offsets of increments that cannot be read, where the next one continues the chain."""
        self.pointed: dict[Pointer, Pointed] = {}
        self._place = place
        self._findings = findings
        self._lost = lost or Orphans()
        self._folding = folding
        self._recent: dict[int, Batch] = {}
        self._highest_epoch: int | None = None
        self._last_claim: int | None = None
        self._pending: Pending[Judged] = Pending()
        self._unread: list[Unread] = []

    def add(self, record: Judged) -> None:
        condition = record.condition
        if condition is Condition.FOREIGN:
            self.foreign_records += 1
            return
        self._findings.of_condition(self._place.increments, record)
        if record.kind == RecordKind.CHANGES:
            self.counts["changes_records"] += 1
        elif record.kind == RecordKind.CLAIM:
            self._claim(record)
        changes = self._pending.add(record.kind, record)
        if changes is None:
            return
        if isinstance(record.entry, Increment):
            self._increment(Found(record.offset, record.entry), changes)
        else:
            # Only a fold reads the values: a reading without one keeps no changes of a long damaged log.
            values = [each.value for each in changes] if self._folding is not None else []
            error = DamagedError(record.problem or "the increment cannot be read")
            self._unread.append(Unread(record.offset, values, error))

    def of(self, logs: Logs, end_offset: int) -> None:
        """Judge all records up to there, and finish."""
        for records in logs.increments(self._place.log_start, end_offset):
            for record in records:
                self.add(judge(record))
        self.finish()

    def finish(self) -> None:
        """Finish once all records have been given."""
        self._nobodys_changes()
        first = self.first
        if first is None:
            self._find("genesis", -1, "no increment, not even the genesis")
        elif self._place.log_start == 0 and first.increment.batch != 0 and not first.increment.begins_chain:
            says = f"the log is whole, but its first increment is batch {first.increment.batch}"
            self._find("genesis", first.offset, says)
        self._only_of_this_topic()

    def batch_of(self, found: Found) -> Batch | None:
        """Return what a pointer to this increment must say; None for an orphan."""
        return None if self._lost.has(found) else (found.increment.batch, found.increment.digest)

    def _claim(self, record: Judged) -> None:
        self._nobodys_changes()
        if isinstance(record.entry, Claim):
            self.counts["claims"] += 1
            self.orphans.claim(record.offset)
            self._of_this_app(record.offset, record.entry.app_id)
            self._last_claim = record.offset

    def _increment(self, found: Found, changes: list[Judged]) -> None:
        offset, increment = found
        self._of_this_app(offset, increment.origin.app_id)
        self.orphans.add(found)
        if self._lost.has(found):
            self.orphan_count += 1
            return
        self.first = self.first or found
        self.counts["increments"] += 1
        self.counts["input_records"] += increment.record_count
        self._compare(found, changes)
        self._note(found)
        if self._folding is not None:
            place = TopicPartition(self._place.increments, self._place.partition)
            step = Step(place, *found, [each.value for each in changes], self._unread)
            self._folding.batch(step, [each.entry for each in changes])
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
        if increment.begins_chain:
            self.begun_at.add(increment.owner_epoch)
        if increment.changes_inputs and self.last is not None:
            self.retired |= _inputs_of(self.last) - _inputs_of(found)
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
        """Leave out pointers into a snapshots topic that was deleted: no recovery follows them."""
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


def _inputs_of(found: Found) -> set[tuple[str, str]]:
    increment = found.increment
    return {(topic, each) for topic, each in increment.topic_ids.items() if each and topic in increment.positions}


def _wrong_changes(found: Found, changes: list[Judged], log_start: int) -> Iterator[tuple[int, str]]:
    """Yield (offset, what is wrong) of the changes records directly before an increment."""
    offset, increment = found
    ref = increment.changes
    if ref is not None and increment.previous_offset + 1 >= log_start:
        entries = sum(
            len(one) for each in changes if isinstance(each.entry, ChangesRecord) for one in each.entry.stores.values()
        )
        crc = joined_crc32([each.value for each in changes])
        if (ref.record_count, ref.entry_count, ref.crc32) != (len(changes), entries, crc):
            yield (
                offset,
                f"batch {increment.batch} names {counted(ref.record_count, 'changes record')},"
                f" {counted(ref.entry_count, 'entry')}, crc32 {ref.crc32:08x}, but before it are {len(changes)},"
                f" {entries}, {crc:08x}",
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
