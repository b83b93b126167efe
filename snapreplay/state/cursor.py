"""Reads a state slice by slice: frozen shards, a stream of entries, a whole store. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from snapreplay import engine
from snapreplay.counted import counted
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import MASK, Digest, adding_up, digest_of
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


def entries_of(shard: Shard, entries_max: int | None = None) -> Iterable[tuple[bytes, bytes]]:
    """Return the entries of a shard that is not written meanwhile, in no order; the engine makes some at a time."""
    if isinstance(shard, dict):
        return islice(shard.items(), entries_max)
    count = len(shard) if entries_max is None else min(entries_max, len(shard))
    starts = range(0, count, SLICE_ENTRIES_MAX)
    return chain.from_iterable(shard.items(at, min(SLICE_ENTRIES_MAX, count - at)) for at in starts)


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
    """Reads the shards of one map as they were at `mark`, slice by slice, while processing continues. No writes go to
    them until `release`. Empty shards give no slice.

    Attributes:
        digest: of all entries.
    """

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
        self._shards = shards
        self._on_release = on_release
        self._next = 0
        self._parts: Iterator[_Piece] = iter(())
        self._held: _Piece | None = None

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """Return the next slices, together at most `raw_bytes_max` bytes, or a single larger entry; none at the end.
        The dicts may be the shards themselves: encode them before `release`, and never change them. Sums that are not
        known are computed from the entries; added up, they must be the digest."""
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
        """Let writes go to the shards again. Idempotent; must be called."""
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
