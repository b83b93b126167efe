"""The state after a committed batch: a snapshot before it and the changes since, proved by the digest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.chunks import read_chunk
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import ChangesRef, Chunk, Increment, Manifest, Pointer
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.moment import Logs, Moment
from snapreplay.snapshots.proof.records import CHANGES, CLAIM, INCREMENT
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.shards import Shards
from snapreplay.state.steps import all_of

_TAIL_RECORDS = 64
"""How far from the end the last increment is looked for first; eight times as far each time it is not there."""


class StateUnreachable(StopError):
    """What the logs hold does not lead to the state that was asked for."""


class At(msgspec.Struct, frozen=True):
    """After which batch: the last one that is within every bound. None bounds nothing.

    Attributes:
        batch, written_at_ms: the last one to count.
        offset: of the increments topic; only what lies below it counts.
    """

    batch: int | None = None
    offset: int | None = None
    written_at_ms: int | None = None

    @property
    def is_latest(self) -> bool:
        return self == At()

    def admits(self, found: Found) -> bool:
        offset, increment = found
        return (
            (self.batch is None or increment.batch <= self.batch)
            and (self.offset is None or offset < self.offset)
            and (self.written_at_ms is None or increment.written_at_ms <= self.written_at_ms)
        )


class Entries:
    """The state of a partition, by store."""

    def __init__(self) -> None:
        self._stores: dict[str, Shards] = {}

    @property
    def digest(self) -> Digest:
        """Of all stores together."""
        total = EMPTY
        for shards in self._stores.values():
            total = total.plus(shards.digest)
        return total

    def load(self, chunk: Chunk, shard_count: int) -> None:
        """A part of a snapshot."""
        self._stores.setdefault(chunk.store, Shards(shard_count)).load(chunk.slices)

    def apply(self, ref: ChangesRef, values: Sequence[bytes]) -> int:
        """One batch, by its changes records. Returns how many entries they have.

        Raises:
            DamagedError, UnknownFormatError: they are not what the increment speaks of.
        """
        count = 0
        for stores in check_changes(ref, values):
            for store, changes in stores.items():
                count += len(changes)
                _apply(self._stores.setdefault(store, Shards()), changes)
        return count

    def shards(self) -> Iterator[tuple[str, list[tuple[bytes, bytes]]]]:
        """(store, encoded keys and values of one shard), each key once; no empty shards."""
        for store, shards in self._stores.items():
            for index in range(shards.mask + 1):
                if entries := shards.entries(index):
                    yield store, entries


class State(NamedTuple):
    """Of a partition after a batch."""

    after: Found
    entries: Entries


def last_batch(moment: Moment, logs: Logs, at: At) -> Found | None:
    """The increment of the batch that `at` means; None when there is none."""
    if not at.is_latest:
        return _last(logs, moment.log_start, moment.log_end, at)
    width = _TAIL_RECORDS
    while True:
        start = max(moment.log_start, moment.log_end - width)
        found = _last(logs, start, moment.log_end, at)
        if found is not None or start == moment.log_start:
            return found
        width *= 8


def state_at(moment: Moment, logs: Logs, at: At) -> State | None:
    """None when no batch is within the bounds.

    Raises:
        StateUnreachable: no snapshot leads there, or a batch on the way recorded no changes.
        DamagedError: what is on the way is not what was written, or the state's digest is another one.
    """
    found = last_batch(moment, logs, at)
    if found is None:
        return None
    base, since = _base(moment, logs, found)
    _bring_forward(base, _records(logs, since, found.offset + 1))
    digest = found.increment.digest
    if digest is not None and base.digest != digest:
        raise DamagedError(
            f"partition {moment.partition}: the state after batch {found.increment.batch} has digest {base.digest},"
            f" recorded is {digest}"
        )
    return State(found, base)


def _last(logs: Logs, start_offset: int, end_offset: int, at: At) -> Found | None:
    last: Found | None = None
    for offset, value in _records(logs, start_offset, end_offset):
        if value[5:6] == bytes([INCREMENT]):
            found = Found(offset, _increment(value))
            if not at.admits(found):
                return last
            last = found
    return last


def _records(logs: Logs, start_offset: int, end_offset: int) -> Iterator[tuple[int, bytes]]:
    for records in logs.increments(start_offset, end_offset):
        for record in records:
            yield record.offset, record.value or b""


def _increment(value: bytes) -> Increment:
    entry = decode(value)
    if not isinstance(entry, Increment):
        raise DamagedError(f"an increment is a {type(entry).__name__.lower()}")
    return entry


def _base(moment: Moment, logs: Logs, found: Found) -> tuple[Entries, int]:
    """The entries of the newest snapshot that is still there, and the offset from which changes follow."""
    for pointer in found.increment.pointers:
        if (
            pointer.first_chunk_offset >= moment.snapshots_start
            and pointer.increment_offset + 1 >= moment.log_start
        ):
            manifest = manifest_of(logs, pointer)
            entries = entries_of(logs, pointer.manifest_offset, manifest)
            return entries, pointer.increment_offset + 1
    if moment.log_start == 0:
        return Entries(), 0
    raise StateUnreachable(
        f"partition {moment.partition}: no snapshot that leads to batch {found.increment.batch} is left, and the"
        f" increments begin at offset {moment.log_start}",
        hint="ask for a later batch: only what the snapshots kept by `retention.snapshots_kept` need is still there",
    )


def manifest_of(logs: Logs, pointer: Pointer) -> Manifest:
    """
    Raises:
        DamagedError: it is not the one that `pointer` says.
    """
    at = pointer.manifest_offset
    manifest: object = None
    for records in logs.snapshots(at, at + 1):
        manifest = decode(records[0].value or b"")
    if not isinstance(manifest, Manifest) or manifest.snapshot_id != pointer.snapshot_id:
        raise DamagedError(
            f"offset {at} holds no manifest of snapshot {pointer.snapshot_id}", offset=at
        )
    return manifest


def chunks_of(logs: Logs, manifest_offset: int, manifest: Manifest) -> Iterator[Chunk]:
    """All chunks, by offset. Every entry is hashed: false sums would make a wrong state look right.

    Raises:
        DamagedError: one is missing, or not what was written.
    """
    refs = {ref.offset: ref for ref in manifest.chunks}
    for records in logs.snapshots(min(refs, default=manifest_offset), manifest_offset):
        for record in records:
            ref = refs.pop(record.offset, None)
            if ref is not None:
                value = record.value or b""
                yield read_chunk(value, ref, manifest.snapshot_id, verify_sums=True)
    if refs:
        raise DamagedError(f"snapshot {manifest.snapshot_id} lacks {len(refs)} of its chunks")


def entries_of(logs: Logs, manifest_offset: int, manifest: Manifest) -> Entries:
    """What is in all chunks. Raises as `chunks_of`."""
    entries = Entries()
    for chunk in chunks_of(logs, manifest_offset, manifest):
        entries.load(chunk, manifest.shard_count)
    return entries


def _bring_forward(entries: Entries, records: Iterable[tuple[int, bytes]]) -> None:
    changes: list[bytes] = []
    for offset, value in records:
        kind = value[5] if len(value) > 5 else None
        if kind == CHANGES:
            changes.append(value)
        elif kind == CLAIM:
            changes = []
        elif kind == INCREMENT:
            _follow(entries, Found(offset, _increment(value)), changes)
            changes = []


def _follow(entries: Entries, found: Found, changes: Sequence[bytes]) -> None:
    increment = found.increment
    if increment.changes is not None:
        entries.apply(increment.changes, changes)
    elif increment.ranges:
        raise StateUnreachable(
            f"batch {increment.batch} at offset {found.offset} recorded no changes: only a replay leads past it",
            hint="ask for a batch that has a snapshot",
        )


def _apply(shards: Shards, changes: dict[bytes, bytes | None]) -> None:
    """One record's changes, digest included."""
    mask, lookups = shards.mask, shards.lookups
    indexes = [crc32(key) & mask for key in changes]
    slots = [(key, lookups[i](key), i) for key, i in zip(changes, indexes, strict=True)]
    all_of(shards.writing(slots, dict(changes)))
    shards.keep()
