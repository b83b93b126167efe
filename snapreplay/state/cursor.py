"""Reads a state slice by slice: frozen shards, a stream of entries, a whole store. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from snapreplay import engine
from snapreplay.counted import counted
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import BLOCK, DEFAULT_STORE, MASK, Digest, adding_up, digest_of
from snapreplay.state.steps import Steps, all_of

if TYPE_CHECKING:
    from snapreplay.state.composite import Store

SLICE_ENTRIES_MAX = 8_192
"""Of a slice: it is encoded and decoded in one step, which takes about a millisecond."""
ENTRIES_MAX = 131_072
"""Entries returned at once, so that small ones fill a chunk."""


NO_SUMS: Mapping[int, tuple[int, int]] = {}

Shard = dict[bytes, bytes] | engine.Shard
"""Encoded key → encoded value."""


def entries_of(shard: Shard) -> Iterable[tuple[bytes, bytes]]:
    """Return the entries of a shard that is not written meanwhile, in no order; the engine makes some at a time."""
    if isinstance(shard, dict):
        return shard.items()
    starts = range(0, len(shard), SLICE_ENTRIES_MAX)
    return chain.from_iterable(shard.items(start, SLICE_ENTRIES_MAX) for start in starts)


def dict_of(shard: Shard) -> dict[bytes, bytes]:
    """Return the shard itself, if it is a dict, else a copy."""
    return shard if isinstance(shard, dict) else shard.copy()


class _Piece(NamedTuple):
    """A piece of a shard; `size_bytes` of its keys and values."""

    shard: int
    entries: dict[bytes, bytes]
    size_bytes: int
    is_whole: bool = False


class ShardCursor:
    """A `Cursor` over shards that nobody changes until `release`. Empty shards give no slice."""

    def __init__(
        self,
        shards: list[Shard],
        digest: Digest,
        on_release: Callable[[ShardCursor], None] | None = None,
        sums: Mapping[int, tuple[int, int]] = NO_SUMS,
    ) -> None:
        """Take `sums`: by shard, as far as known."""
        self.digest = digest
        self._sums = sums
        self.store = DEFAULT_STORE
        self._shards = shards
        self._on_release = on_release
        self._next = 0
        self._parts: Iterator[_Piece] = iter(())
        self._held: _Piece | None = None

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """Slice as `Cursor` says. Sums that are not known are computed from the entries; added up, they must be the
        image's digest."""
        slices: list[ShardSlice] = []
        room_bytes, room_entries = raw_bytes_max, ENTRIES_MAX
        while (piece := self._next_piece(raw_bytes_max)) is not None:
            room_bytes -= piece.size_bytes
            room_entries -= len(piece.entries)
            if slices and (room_bytes < 0 or room_entries < 0):
                self._held = piece
                break
            index, entries, _, is_whole = piece
            if is_whole and index in self._sums:
                slices.append(ShardSlice(index, *self._sums[index], entries))
                yield
            else:
                slices.append((yield from _slicing(index, entries)))
        return slices

    def release(self) -> None:
        self._shards = []
        self._parts = iter(())
        self._held = None
        if self._on_release is not None:
            self._on_release(self)
            self._on_release = None

    def _next_piece(self, raw_bytes_max: int) -> _Piece | None:
        """Return a whole shard, or the next part of a large one."""
        held, self._held = self._held, None
        if held is not None:
            return held
        while (part := next(self._parts, None)) is None and self._next < len(self._shards):
            index, shard = self._next, self._shards[self._next]
            # Not held longer than needed: once settled, the old dict of a shard would be held twice.
            self._shards[index] = {}
            self._next += 1
            self._parts = _parts(index, shard, raw_bytes_max)
        return part


class EntryStream:
    """An `Image` of entries that come one by one and are never all in memory. It is read once."""

    def __init__(self, entries: Iterable[tuple[bytes, bytes]], digest: Digest, shard_count: int) -> None:
        """Take `entries`: encoded, each key once, in any order; grouping them by shard gives the fewest slices.
        `digest`: of all of them; the writer compares it."""
        self.digest = digest
        self.store = DEFAULT_STORE
        self.shard_count = shard_count
        self._entries = iter(entries)

    def mark(self) -> EntryStream:
        return self

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        shards: dict[int, dict[bytes, bytes]] = {}
        taken = self._taken(raw_bytes_max)
        while block := list(islice(taken, BLOCK)):
            for key, value in block:
                shards.setdefault(crc32(key) & (self.shard_count - 1), {})[key] = value
            yield
        slices: list[ShardSlice] = []
        for index, entries in shards.items():
            slices.append((yield from _slicing(index, entries)))
        return slices

    def release(self) -> None:
        """Do nothing: there is nothing to release."""

    def _taken(self, raw_bytes_max: int) -> Iterator[tuple[bytes, bytes]]:
        room_bytes = raw_bytes_max
        for key, value in islice(self._entries, ENTRIES_MAX):
            yield key, value
            room_bytes -= len(key) + len(value)
            if room_bytes <= 0:
                return


def _slicing(index: int, entries: dict[bytes, bytes]) -> Steps[ShardSlice]:
    sums = yield from adding_up(entries.items())
    return ShardSlice(index, sums.a, sums.b, entries)


def _parts(index: int, shard: Shard, raw_bytes_max: int) -> Iterator[_Piece]:
    if len(shard) <= SLICE_ENTRIES_MAX:
        whole = dict_of(shard)
        size_bytes = sum(map(len, whole)) + sum(map(len, whole.values()))
        if size_bytes <= raw_bytes_max:
            if whole:
                yield _Piece(index, whole, size_bytes, is_whole=True)
            return
    part: dict[bytes, bytes] = {}
    part_bytes = 0
    for key, value in entries_of(shard):
        entry_bytes = len(key) + len(value)
        if part and (part_bytes + entry_bytes > raw_bytes_max or len(part) == SLICE_ENTRIES_MAX):
            yield _Piece(index, part, part_bytes)
            part, part_bytes = {}, 0
        part[key] = value
        part_bytes += entry_bytes
    yield _Piece(index, part, part_bytes)


def split(part: ShardSlice) -> tuple[ShardSlice, ShardSlice]:
    """Return two halves by entry count, each with its exact sums, for a writer whose chunk is too large. Raises
    ValueError: fewer than two entries."""
    if len(part.entries) < 2:
        raise ValueError(f"a slice of {counted(len(part.entries), 'entry')} cannot be split")
    half = len(part.entries) // 2
    first = dict(islice(part.entries.items(), half))
    second = dict(islice(part.entries.items(), half, None))
    sums = digest_of(first.items())
    return (
        ShardSlice(part.index, sums.a, sums.b, first),
        ShardSlice(part.index, (part.digest_a - sums.a) & MASK, (part.digest_b - sums.b) & MASK, second),
    )


_SLICE_BYTES = 1 << 20

Slices = list[tuple[str, ShardSlice]]
"""Of a whole state, each with the name of its store."""


def load_slices(store: Store, slices: Slices, stream_time_ms: int) -> None:
    """Make the store what `slices_of` was given, of a store with as many shards."""
    store.clear(store.shard_count)
    for name, one in slices:
        store.load((one,), name)
    store.stream_time_ms = stream_time_ms


def slices_of(store: Store) -> Slices:
    """Return all entries of a store in which nothing is uncommitted, with the names of their stores."""
    cursor = store.mark()
    found: Slices = []
    try:
        while slices := all_of(cursor.slicing(_SLICE_BYTES)):
            # The entries of a slice are the store's own until its next write.
            found += [(cursor.store, msgspec.structs.replace(one, entries=dict(one.entries))) for one in slices]
    finally:
        cursor.release()
    return found
