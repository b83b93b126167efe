"""Makes batches of the records of the increments topic: records in, steps out; and applies their changes. Pure.

Everything that follows a log uses it: a recovery, an audit, a job, a reader of the state. So none can take another
record for an increment, or other changes for its batch, than the others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError, RebuildError, StopError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.envelope import RecordKind, headers_for, kind_of
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRecord, Genesis, Increment, LogEntry, Manifest
from snapreplay.snapshots.log.reading import TopicPartition, decode_as, is_ours, place_of
from snapreplay.state.contract import StateChanges
from snapreplay.state.steps import Steps

T = TypeVar("T")

_KIND_HEADERS = {headers_for(kind)[0]: kind for kind in RecordKind}


class Base(Struct, frozen=True):
    """The committed batch a state belongs to: where the walk begins.

    `increment_offset` is that of its increment, NO_OFFSET before the genesis; `read_from_offset` is where the
    records after it begin.
    """

    batch: int
    increment_offset: int
    read_from_offset: int
    positions: Mapping[str, int]

    @classmethod
    def of_snapshot(cls, manifest: Manifest) -> Base:
        offset = manifest.increment_offset
        return cls(manifest.batch, offset, offset + 1, manifest.positions)

    @classmethod
    def of_increment(cls, increment: Increment, offset: int) -> Base:
        return cls(increment.batch, offset, offset + 1, increment.positions)

    @classmethod
    def before_genesis(cls, genesis: Genesis, log_start_offset: int) -> Base:
        """Return the base of the empty state: the first increment of the log must be batch 0."""
        return cls(-1, NO_OFFSET, log_start_offset, genesis.start_offsets)


class BrokenChain(StopError):
    """An increment does not follow the previous one: the log is not the chain that was written."""


class Unread(Struct, frozen=True):
    """A committed batch whose increment, at `offset`, is damaged: only its changes records are left."""

    offset: int
    changes: Sequence[bytes]
    error: DamagedError


class Step(Struct, frozen=True):
    """One committed batch in `place`: its increment, and the values of the changes records before it, undecoded.

    `unread` are the batches directly before it whose increments cannot be read. This increment names the last of
    them as its predecessor and counts them in its batch number; only its digest shows that their changes are whole.
    """

    place: TopicPartition
    offset: int
    increment: Increment
    changes: Sequence[bytes]
    unread: Sequence[Unread] = ()


class Pending(Generic[T]):
    """Holds the changes records that were read since the last increment. A claim ends what came before it."""

    def __init__(self) -> None:
        self.changes: list[T] = []

    def add(self, kind: int | None, record: T) -> list[T] | None:
        """Take the next record. Returns the changes before an increment; None for any other record."""
        if kind == RecordKind.CHANGES:
            self.changes.append(record)
        elif kind == RecordKind.INCREMENT:
            changes, self.changes = self.changes, []
            return changes
        elif kind == RecordKind.CLAIM:
            self.changes = []
        return None


class Batches:
    """Give it each record in order, then `finish`."""

    def __init__(self) -> None:
        self._pending: Pending[bytes] = Pending()
        self._unread: list[Unread] = []

    def add(self, record: InputRecord) -> Step | None:
        """Return the batch that ends with this record.

        Raises:
            DamagedError: nothing shows what the record was.
            UnknownFormatError: a newer version wrote it.
        """
        value = record.value or b""
        changes = self._pending.add(kind_in(record), value)
        if changes is None:
            return None
        place = place_of(record)
        try:
            increment = decode_as(Increment, value, place, record.offset)
        except DamagedError as error:
            self._unread.append(Unread(record.offset, changes, error))
            return None
        unread, self._unread = tuple(self._unread), []
        return Step(place, record.offset, increment, changes, unread)

    def of(self, slices: Iterable[Sequence[InputRecord]]) -> Iterator[Step]:
        """Return all batches of a log that is read at once. Raises as `add` and `finish`."""
        for records in slices:
            for record in records:
                step = self.add(record)
                if step is not None:
                    yield step
        self.finish()

    def finish(self) -> None:
        """End the log. Raises DamagedError: the last increments cannot be read."""
        for each in self._unread:
            raise each.error


class ChainReader:
    """The batches from `base` on, each linked to the one before it. Give it each record in order, then `finish`."""

    def __init__(self, log: TopicPartition, base: Base) -> None:
        self._log = log
        self._batches = Batches()
        self._batch, self._offset = base.batch, base.increment_offset

    def add(self, record: InputRecord) -> Step | None:
        """Return the batch that ends with this record.

        Raises:
            BrokenChain: batch number or predecessor differ from what was written.
            DamagedError: increments that cannot be read, and the next one is not their successor.
            SnapreplayError: as `Batches.add`.
        """
        step = self._batches.add(record)
        if step is None:
            return None
        unread = [each.offset for each in step.unread]
        if not follows(step.increment, self._batch, self._offset, unread):
            for each in step.unread:
                raise each.error
            raise BrokenChain(
                f"{self._log} offset {step.offset}: {broken_link(step.increment, self._batch, self._offset)}",
                expected_batch=self._batch + 1,
                found_batch=step.increment.batch,
            )
        self._batch, self._offset = step.increment.batch, step.offset
        return step

    def finish(self, last: Increment, last_offset: int) -> None:
        """End the chain. Raises BrokenChain: the last batch is another one."""
        if (self._batch, self._offset) != (last.batch, last_offset):
            raise BrokenChain(
                f"the chain in {self._log} ends with batch {self._batch} at offset {self._offset}, but the last"
                f" increment is batch {last.batch} at {last_offset}: the log changed while it was read, or was cut",
                expected_batch=self._batch + 1,
                found_batch=self._batch,
            )


def follows(increment: Increment, batch: int, offset: int, unread: Sequence[int] = ()) -> bool:
    """Return whether an increment continues the chain that ends with `batch` at `offset`. `unread`: offsets of the
    increments between them that cannot be read."""
    previous_offset = unread[-1] if unread else offset
    expected = batch + len(unread) + 1, previous_offset
    return (increment.batch, increment.previous_offset) == expected


def broken_link(increment: Increment, batch: int, offset: int) -> str:
    """Say what an increment names and what is there: `batch` at `offset`."""
    if increment.begins_chain:
        finding = (increment.decision or {}).get("finding", "without a name")
        return f"batch {increment.batch} begins a new chain, by decision {finding}; batch {batch} does not lead there"
    return (
        f"batch {increment.batch} names offset {increment.previous_offset} as its predecessor, but batch {batch} at"
        f" {offset} precedes it: this is not the chain that was written"
    )


def kind_in(record: InputRecord) -> RecordKind | None:
    """Return the kind of one of our records; None for a foreign one.

    If value and header differ and the value is damaged, the header counts: a flipped kind must not hide an increment,
    and lost first bytes must not make changes foreign, whose checksum their increment holds.

    Raises:
        DamagedError: no header helps.
        UnknownFormatError: a newer version wrote it.
    """
    value = record.value or b""
    kind, named = kind_of(value), named_kind(record)
    if kind is None and not is_ours(value, record.headers):
        return None
    if kind is not None and named in {kind, None}:
        return kind
    if kind is None and named is RecordKind.CHANGES:
        return named
    try:
        decode_as(object, value, place_of(record), record.offset)
    except DamagedError:
        if named is None:
            raise
        return named
    return kind


def named_kind(record: InputRecord) -> RecordKind | None:
    """Return what the header of a record says that it is."""
    for each in record.headers:
        if each in _KIND_HEADERS:
            return _KIND_HEADERS[each]
    return None


class ChangesLost(RebuildError):
    """The changes of a batch are damaged, missing, or were never recorded. A replay may still restore it."""


class Changing(Protocol):
    """The receiver of changes: a `Store`, or entries without a handler."""

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        """Clear these stores, then write and delete entries."""


def apply_changes(step: Step, state: Changing, decoded: Sequence[LogEntry | None] | None = None) -> Steps[None]:
    """Apply one batch, and those before it whose increments cannot be read.

    Args:
        decoded: see `check_changes`.

    Raises:
        ChangesLost: it was written without changes.
        DamagedError: they are not what the increment names; the state has a part of them.
        UnknownFormatError: a newer version wrote them.
    """
    _apply_unread(step, state)
    increment = step.increment
    if increment.cleared:
        state.apply_changes({}, increment.cleared)
    where = f"{step.place} offset {step.offset}: batch {increment.batch}"
    if increment.changes is None:
        if not increment.is_empty:
            raise ChangesLost(f"{where} was written without changes (changelog.enabled = false)")
        return
    try:
        for stores in check_changes(increment.changes, step.changes, decoded):
            state.apply_changes(stores)
            yield
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **error.facts) from error


def _apply_unread(step: Step, state: Changing) -> None:
    """Apply the batches without an increment: only the next digest shows whether this is all that they changed."""
    first_batch = step.increment.batch - len(step.unread)
    for batch, each in enumerate(step.unread, first_batch):
        for part, value in enumerate(each.changes):
            record = decode_as(ChangesRecord, value, step.place, each.offset)
            if (record.batch, record.part) != (batch, part):
                raise each.error
            state.apply_changes(record.stores)
