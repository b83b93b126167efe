"""Reads frozen shards slice by slice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from zlib import crc32

from snapreplay.counted import counted
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import DEFAULT_STORE, MASK, Digest, adding_up, digest_of
from snapreplay.state.steps import Steps

ENTRIES_MAX = 8_192
"""Entries returned at once; hashing takes 0.2 to 0.3 µs each."""


class ShardCursor:
    """A `Cursor` over shards that nobody changes until `release`. Empty shards give no slice."""

    def __init__(
        self,
        shards: list[dict[bytes, bytes]],
        digest: Digest,
        on_release: Callable[[ShardCursor], None] | None = None,
    ) -> None:
        self.digest = digest
        self.store = DEFAULT_STORE
        self._shards = shards
        self._on_release = on_release
        self._next = 0
        self._parts: Iterator[dict[bytes, bytes]] = iter(())

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """See `Cursor`. The sums are computed from the entries; added up, they must be the image's digest."""
        part = next(self._parts, None)
        if part is not None:
            return [(yield from _slicing(self._next - 1, part))]
        slices: list[ShardSlice] = []
        room_bytes, room_entries = raw_bytes_max, ENTRIES_MAX
        while self._next < len(self._shards):
            shard = self._shards[self._next]
            room_bytes -= sum(map(len, shard)) + sum(map(len, shard.values()))
            room_entries -= len(shard)
            if room_bytes < 0 or room_entries < 0:
                break
            self._pass_shard()
            if shard:
                slices.append((yield from _slicing(self._next - 1, shard)))
        if slices:
            return slices
        if self._next < len(self._shards):
            self._parts = _parts(self._shards[self._next], raw_bytes_max)
            self._pass_shard()
            return [(yield from _slicing(self._next - 1, next(self._parts)))]
        return []

    def release(self) -> None:
        self._shards = []
        self._parts = iter(())
        if self._on_release is not None:
            self._on_release(self)
            self._on_release = None

    def _pass_shard(self) -> None:
        # Not held longer than needed: once settled, the old dict of a shard would be held twice.
        self._shards[self._next] = {}
        self._next += 1


class EntryStream:
    """An `Image` of entries that come one by one and are never all in memory. It is read once."""

    def __init__(
        self, entries: Iterable[tuple[bytes, bytes]], digest: Digest, shard_count: int
    ) -> None:
        """`entries`: encoded, each key once, in any order; grouping them by shard gives the fewest slices.
        `digest`: of all of them; the writer compares it."""
        self.digest = digest
        self.store = DEFAULT_STORE
        self.shard_count = shard_count
        self._entries = iter(entries)

    def mark(self) -> EntryStream:
        return self

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """See `Cursor`."""
        shards: dict[int, dict[bytes, bytes]] = {}
        for key, value in self._block(raw_bytes_max):
            shards.setdefault(crc32(key) & (self.shard_count - 1), {})[key] = value
        slices: list[ShardSlice] = []
        for index, entries in shards.items():
            slices.append((yield from _slicing(index, entries)))
        return slices

    def release(self) -> None:
        """There is nothing to release."""

    def _block(self, raw_bytes_max: int) -> Iterator[tuple[bytes, bytes]]:
        room_bytes = raw_bytes_max
        for key, value in islice(self._entries, ENTRIES_MAX):
            yield key, value
            room_bytes -= len(key) + len(value)
            if room_bytes <= 0:
                return


def _slicing(index: int, entries: dict[bytes, bytes]) -> Steps[ShardSlice]:
    sums = yield from adding_up(entries.items())
    return ShardSlice(index, sums.a, sums.b, entries)


def _parts(shard: dict[bytes, bytes], raw_bytes_max: int) -> Iterator[dict[bytes, bytes]]:
    part: dict[bytes, bytes] = {}
    room_bytes = raw_bytes_max
    for key, value in shard.items():
        size_bytes = len(key) + len(value)
        if part and (size_bytes > room_bytes or len(part) == ENTRIES_MAX):
            yield part
            part, room_bytes = {}, raw_bytes_max
        part[key] = value
        room_bytes -= size_bytes
    if part:
        yield part


def split(part: ShardSlice) -> tuple[ShardSlice, ShardSlice]:
    """Return two halves by entry count, each with its exact sums, for a writer whose chunk is too large.

    Raises:
        ValueError: fewer than two entries.
    """
    if len(part.entries) < 2:
        raise ValueError(f"a slice of {counted(len(part.entries), 'entry')} cannot be split")
    half = len(part.entries) // 2
    first = dict(islice(part.entries.items(), half))
    second = dict(islice(part.entries.items(), half, None))
    sums = digest_of(first.items())
    return (
        ShardSlice(part.index, sums.a, sums.b, first),
        ShardSlice(
            part.index, (part.digest_a - sums.a) & MASK, (part.digest_b - sums.b) & MASK, second
        ),
    )
