"""Every kind of damage that we can do to the two topics, by the record that it hits. docs/results.md has the same
table with what comes of it: a test makes the table anew and compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from snapreplay.snapshots.format.envelope import RecordKind
from tests.damage import edits
from tests.damage.edits import Change, Edit

INCREMENTS, SNAPSHOTS = "increments", "snapshots"


@dataclass(frozen=True)
class Case:
    """One row. `edits` are alternatives that must all come to the same end; each is a list of (topic, edit), and
    "trim" in the place of an edit trims the topic below the record of that kind and index. `says`: words that the
    status must have."""

    record: str
    damage: str
    edits: tuple[tuple[tuple[str, Edit | Trim], ...], ...]
    says: str = ""
    changes: bool = True


@dataclass(frozen=True)
class Trim:
    """DeleteRecords below the record of this kind with this index, or to the log's end."""

    kind: RecordKind | None
    number: int = -1


def cases() -> Iterator[Case]:
    """All rows, in the order of the table."""
    yield from _snapshots()
    yield from _changes()
    yield from _increments()
    yield from _last()
    yield from _others()


def _snapshots() -> Iterator[Case]:
    chunk, manifest = "chunk of the newest snapshot", "manifest of the newest snapshot"
    yield from _bytes(chunk, SNAPSHOTS, RecordKind.CHUNK, -1, "its manifest says")
    yield _one(
        chunk, "of a newer format", SNAPSHOTS, RecordKind.CHUNK, -1, edits.from_the_future(), "crc"
    )
    yield Case(chunk, "gone", _each(SNAPSHOTS, edits.drop(RecordKind.CHUNK, -1)), "lacks 1 of")
    foreign = edits.replace_by_foreign(RecordKind.CHUNK, -1)
    yield Case(chunk, "another program's record in its place", _each(SNAPSHOTS, foreign), "crc32")
    swapped = edits.exchange(RecordKind.CHUNK, -1, -2)
    yield Case(chunk, "exchanged with its neighbour", _each(SNAPSHOTS, swapped), "crc32")
    yield from _bytes(manifest, SNAPSHOTS, RecordKind.MANIFEST, -1, f"{SNAPSHOTS}-0 offset")
    future = edits.from_the_future()
    says = "this build knows"
    yield _one(manifest, "of a newer format", SNAPSHOTS, RecordKind.MANIFEST, -1, future, says)
    gone = edits.drop(RecordKind.MANIFEST, -1)
    yield Case(manifest, "gone", _each(SNAPSHOTS, gone), "holds nothing at manifest offset")
    swapped = edits.exchange(RecordKind.MANIFEST, -1, -2)
    yield Case(
        manifest, "exchanged with the one before", _each(SNAPSHOTS, swapped), "pointer names"
    )


def _changes() -> Iterator[Case]:
    record = "changes of the last batch"
    kind = RecordKind.CHANGES
    yield from _bytes(record, INCREMENTS, kind, -1, "the changes records have crc32")
    yield _one(record, "of a newer format", INCREMENTS, kind, -1, edits.from_the_future(), "crc32")
    gone = edits.drop(kind, -1)
    yield Case(record, "gone", _each(INCREMENTS, gone), "changes record, but before it there are 0")
    swapped = edits.exchange(kind, -1, -2)
    yield Case(record, "exchanged with those before", _each(INCREMENTS, swapped), "crc32")


def _increments() -> Iterator[Case]:
    record, kind = "increment behind the newest snapshot", RecordKind.INCREMENT
    yield from _bytes(record, INCREMENTS, kind, -2, f"{INCREMENTS}-0 offset")
    says = "this build knows"
    yield _one(record, "of a newer format", INCREMENTS, kind, -2, edits.from_the_future(), says)
    gone = _each(INCREMENTS, edits.drop(kind, -2), edits.replace_by_foreign(kind, -2))
    yield Case(record, "gone, or another program's in its place", gone, "as its predecessor")
    swapped = _each(INCREMENTS, edits.exchange(kind, -2, -3))
    yield Case(record, "exchanged with the one before", swapped, "as its predecessor")
    both = _each(
        INCREMENTS, _all(*(edits.change(k, -2, _flip) for k in (kind, RecordKind.CHANGES)))
    )
    yield Case(record, "a byte flipped, and in its changes", both, "neither mode")
    without = _all(edits.drop(RecordKind.CHANGES, -2), edits.change(kind, -2, _flip))
    gone = _each(INCREMENTS, without)
    yield Case(record, "a byte flipped, and its changes gone", gone, "neither mode")
    lean = _each(INCREMENTS, edits.change(kind, -2, _flip))
    yield Case(
        record, "a byte flipped, changelog.enabled = false", lean, "neither mode", changes=False
    )


def _last() -> Iterator[Case]:
    record, kind = "last increment", RecordKind.INCREMENT
    yield from _bytes(record, INCREMENTS, kind, -1, f"{INCREMENTS}-0 offset")
    says = "this build knows"
    yield _one(record, "of a newer format", INCREMENTS, kind, -1, edits.from_the_future(), says)
    swapped = _each(INCREMENTS, edits.exchange(kind, -1, -2))
    yield Case(record, "exchanged with the one before", swapped, "as its predecessor")
    others = [edits.overwrite(kind, -1, by) for by in (RecordKind.CLAIM, RecordKind.CHANGES)]
    says = f"{INCREMENTS}-0 offset"
    yield Case(record, "a claim or changes in its place", _each(INCREMENTS, *others), says)
    gone = _each(INCREMENTS, edits.drop(kind, -1), edits.replace_by_foreign(kind, -1))
    yield Case(record, "gone, its changes are there", gone, says)


def _others() -> Iterator[Case]:
    flipped = [edits.change(RecordKind.CLAIM, 0, how) for how in (*edits.flips(), *edits.cuts())]
    yield Case("claim of an earlier owner", "any byte flipped, cut", _each(INCREMENTS, *flipped))
    chunks = _all(
        edits.change(RecordKind.CHUNK, -1, _flip), edits.change(RecordKind.CHUNK, 0, _flip)
    )
    yield Case("chunks of both snapshots", "a byte flipped", _each(SNAPSHOTS, chunks), "crc32")
    trimmed = (((SNAPSHOTS, chunks), (INCREMENTS, Trim(RecordKind.INCREMENT, 1))),)
    yield Case(
        "the same", "and T-ZengLiang trimmed", trimmed, "no snapshot can be used to restore batch 8"
    )
    first = (
        ((SNAPSHOTS, Trim(RecordKind.MANIFEST, 0)), (INCREMENTS, Trim(RecordKind.INCREMENT, 1))),
    )
    yield Case("both topics", "trimmed below what the newest snapshot needs", first)
    half = (((SNAPSHOTS, Trim(RecordKind.MANIFEST, -1)),),)
    yield Case("T-QuanLiang", "trimmed into the newest snapshot", half, "which now starts at")
    cut = (((INCREMENTS, Trim(RecordKind.INCREMENT, -1)),),)
    yield Case(
        "T-ZengLiang",
        "trimmed to the last increment",
        cut,
        "no snapshot can be used to restore batch 8",
    )
    everything = (((INCREMENTS, Trim(None)),),)
    yield Case("T-ZengLiang", "trimmed to its end", everything, "not even the genesis")


def _bytes(record: str, topic: str, kind: RecordKind, number: int, says: str) -> Iterator[Case]:
    yield _one(record, "any byte flipped", topic, kind, number, edits.flips(), says)
    yield _one(record, "cut, emptied, lengthened", topic, kind, number, edits.cuts(), says)
    yield _one(record, "would fill the memory", topic, kind, number, edits.bombs(), says)


def _one(
    record: str,
    damage: str,
    topic: str,
    kind: RecordKind,
    number: int,
    changes: Iterable[Change],
    says: str,
) -> Case:
    each = [edits.change(kind, number, how) for how in changes]
    return Case(record, damage, _each(topic, *each), says)


def _each(topic: str, *alternatives: Edit) -> tuple[tuple[tuple[str, Edit | Trim], ...], ...]:
    return tuple(((topic, edit),) for edit in alternatives)


def _all(*together: Edit) -> Edit:
    def edit(slots: edits.Slots) -> None:
        for each in together:
            each(slots)

    return edit


_flip: Callable[[bytes], bytes | None] = next(edits.flips())
