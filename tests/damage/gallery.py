"""Every kind of damage that we can do to the two topics, by the record that it hits. docs/internals/results.md has the
same table with the outcomes: a test carries it out and compares."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from snapreplay.service.control.status import RecoveryStatus
from snapreplay.snapshots.format.envelope import RecordKind
from tests.damage import edits
from tests.damage.edits import Change, Edit, Slot, Slots, of_kind

INCREMENTS, SNAPSHOTS = "increments", "snapshots"


@dataclass(frozen=True)
class Trim:
    """DeleteRecords below the record of this kind with this index, or to the log's end."""

    kind: RecordKind | None
    number: int = -1


Edits = tuple[tuple[str, Edit | Trim], ...]
"""Of topics, in this order."""


@dataclass(frozen=True)
class Case:
    """One damage. `edits` are alternatives that must all end alike. `says`: words that the status must have."""

    record: str
    damage: str
    edits: tuple[Edits, ...]
    says: str = ""
    changes: bool = True


@dataclass(frozen=True)
class Target:
    """A record: the one with this index among those of its kind."""

    name: str
    kind: RecordKind
    number: int = -1

    @property
    def topic(self) -> str:
        in_snapshots = self.kind in (RecordKind.CHUNK, RecordKind.MANIFEST)
        return SNAPSHOTS if in_snapshots else INCREMENTS

    def case(self, damage: str, says: str, *alternatives: Edit, changes: bool = True) -> Case:
        each = tuple(((self.topic, edit),) for edit in alternatives)
        return Case(self.name, damage, each, says, changes)

    def bytes(self, says: str) -> Iterator[Case]:
        yield self.case("any byte flipped", says, *self.changed(edits.flips()))
        yield self.case("cut, emptied, lengthened", says, *self.changed(edits.cuts()))
        yield self.case("would fill the memory", says, *self.changed(edits.bombs()))

    def newer(self, says: str) -> Case:
        return self.case("of a newer format", says, *self.changed(edits.from_the_future()))

    def of(self, slots: Slots) -> Slot:
        return of_kind(slots, self.kind)[self.number]

    def changed(self, ways: Iterable[Change]) -> Iterator[Edit]:
        for way in ways:

            def edit(slots: Slots, way: Change = way) -> None:
                slot = self.of(slots)
                slot.value = way(slot.value or b"")

            yield edit

    def flipped(self, slots: Slots) -> None:
        next(self.changed(edits.flips()))(slots)

    def dropped(self, slots: Slots) -> None:
        """Nothing is left at its offset."""
        slots.remove(self.of(slots))

    def foreign(self, slots: Slots) -> None:
        """Somebody else's record lies at its offset."""
        slot = self.of(slots)
        slot.key, slot.value, slot.headers = b"k", b"hello", ()

    def exchanged(self, slots: Slots) -> None:
        """It and the one before have changed places."""
        one, other = self.of(slots), of_kind(slots, self.kind)[self.number - 1]
        one.value, other.value = other.value, one.value

    def overwritten(self, by: RecordKind) -> Edit:
        """The bytes of a record of another kind, whole, lie where this one's were."""
        return lambda slots: setattr(self.of(slots), "value", of_kind(slots, by)[0].value)


CHUNK = Target("chunk of the newest snapshot", RecordKind.CHUNK)
MANIFEST = Target("manifest of the newest snapshot", RecordKind.MANIFEST)
CHANGES = Target("changes of the last batch", RecordKind.CHANGES)
BEHIND = Target("increment behind the newest snapshot", RecordKind.INCREMENT, -2)
LAST = Target("last increment", RecordKind.INCREMENT)
CLAIM = Target("claim of an earlier owner", RecordKind.CLAIM, 0)
CHUNKS = Target("chunks of both snapshots", RecordKind.CHUNK)
KNOWN, PLACE, PREDECESSOR = "this build knows", "-0 offset", "as its predecessor"


def cases() -> Iterator[Case]:
    """All damages, in the order of the table."""
    yield from CHUNK.bytes("its manifest says")
    yield CHUNK.newer("crc")
    yield CHUNK.case("gone", "lacks 1 of", CHUNK.dropped)
    yield CHUNK.case("another program's record in its place", "crc32", CHUNK.foreign)
    yield CHUNK.case("exchanged with its neighbour", "crc32", CHUNK.exchanged)
    yield from MANIFEST.bytes(SNAPSHOTS + PLACE)
    yield MANIFEST.newer(KNOWN)
    yield MANIFEST.case("gone", "holds nothing at manifest offset", MANIFEST.dropped)
    yield MANIFEST.case("exchanged with the one before", "pointer names", MANIFEST.exchanged)
    yield from CHANGES.bytes("the changes records have crc32")
    yield CHANGES.newer("crc32")
    yield CHANGES.case("gone", "changes record, but before it there are 0", CHANGES.dropped)
    yield CHANGES.case("exchanged with those before", "crc32", CHANGES.exchanged)
    yield from _increments()
    yield CLAIM.case("any byte flipped, cut", "", *CLAIM.changed((*edits.flips(), *edits.cuts())))
    yield CHUNKS.case("a byte flipped", "crc32", _both_chunks)
    yield from _trimmed()


def _increments() -> Iterator[Case]:
    elsewhere = "gone, or another program's in its place"
    changes = Target("", RecordKind.CHANGES, -2)
    yield from BEHIND.bytes(INCREMENTS + PLACE)
    yield BEHIND.newer(KNOWN)
    yield BEHIND.case(elsewhere, PREDECESSOR, BEHIND.dropped, BEHIND.foreign)
    yield BEHIND.case("exchanged with the one before", PREDECESSOR, BEHIND.exchanged)
    neither = "neither mode"
    both = _all(BEHIND.flipped, changes.flipped)
    yield BEHIND.case("a byte flipped, and in its changes", neither, both)
    without = _all(changes.dropped, BEHIND.flipped)
    yield BEHIND.case("a byte flipped, and its changes gone", neither, without)
    lean = "a byte flipped, changelog.enabled = false"
    yield BEHIND.case(lean, neither, BEHIND.flipped, changes=False)
    yield from LAST.bytes(INCREMENTS + PLACE)
    yield LAST.newer(KNOWN)
    yield LAST.case("exchanged with the one before", PREDECESSOR, LAST.exchanged)
    others = [LAST.overwritten(by) for by in (RecordKind.CLAIM, RecordKind.CHANGES)]
    yield LAST.case("a claim or changes in its place", INCREMENTS + PLACE, *others)
    yield LAST.case("gone, its changes are there", INCREMENTS + PLACE, LAST.dropped, LAST.foreign)


def _trimmed() -> Iterator[Case]:
    nothing = "no snapshot can be used to restore batch 8"
    log = (INCREMENTS, Trim(RecordKind.INCREMENT, 1))
    yield Case("the same", "and T-ZengLiang trimmed", (((SNAPSHOTS, _both_chunks), log),), nothing)
    first = ((SNAPSHOTS, Trim(RecordKind.MANIFEST, 0)), log)
    yield Case("both topics", "trimmed below what the newest snapshot needs", (first,))
    half = ((SNAPSHOTS, Trim(RecordKind.MANIFEST)),)
    says = "which now starts at"
    yield Case("T-QuanLiang", "trimmed into the newest snapshot", (half,), says)
    cut = ((INCREMENTS, Trim(RecordKind.INCREMENT)),)
    yield Case("T-ZengLiang", "trimmed to the last increment", (cut,), nothing)
    everything = ((INCREMENTS, Trim(None)),)
    yield Case("T-ZengLiang", "trimmed to its end", (everything,), "not even the genesis")


def _all(*together: Edit) -> Edit:
    def edit(slots: Slots) -> None:
        for each in together:
            each(slots)

    return edit


_both_chunks = _all(CHUNK.flipped, Target("", RecordKind.CHUNK, 0).flipped)


# ------------------------------------------------------------------- the table in docs/internals/results.md


def ends(restore: RecoveryStatus, snapshots: list[str], error: str | None) -> str:
    """`snapshots`: the ids that the last increment points to, newest first; `error`: what made it FAILED."""
    if error is not None:
        return f"FAILED, `{error}`"
    used = restore.snapshot.snapshot_id if restore.snapshot else None
    place = snapshots.index(used) if used else len(snapshots)
    where = ("newest snapshot", "snapshot before", "genesis")[place]
    return f"LIVE from the {where}, by {restore.mode}"


def table(document: str) -> list[tuple[str, str, str]]:
    """Record, damage and end of each row of the document; a row may have several damages that end alike."""
    _, _, rest = document.partition("| record | damage |")
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    return [(record, damage, end) for record, many, end in rows for damage in many.split("; ")]


def told(restore: RecoveryStatus, error: Any) -> str:
    """All that the status says about the damage."""
    return f"{restore.fallback_reason or ''} {error.message if error else ''}"
