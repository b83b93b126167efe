"""Reads frozen shards slice by slice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from snapreplay.snapshots.state.contract import ShardSlice
from snapreplay.snapshots.state.digest import MASK, Digest, digest_of

PART_ENTRIES_MAX = 8192
"""Entries of one part of a large shard: each is hashed, 0.2 to 0.3 µs."""


class ShardCursor:
    """A `Cursor` over shards that nobody changes until `release`. Empty shards give no slice."""

    def __init__(
        self,
        *,
        shards: list[dict[bytes, bytes]],
        sums_a: list[int],
        sums_b: list[int],
        digest: Digest,
        on_release: Callable[[ShardCursor], None] | None = None,
    ) -> None:
        self.digest = digest
        self._shards = shards
        self._sums_a = sums_a
        self._sums_b = sums_b
        self._on_release = on_release
        self._next = 0
        self._parts: Iterator[ShardSlice] | None = None

    def next_slices(self, raw_bytes_max: int) -> Sequence[ShardSlice]:
        """See `Cursor`. A slice holds more than `raw_bytes_max` only when a single entry does."""
        if self._parts is None:
            slices = self._whole_shards(raw_bytes_max)
            if slices or self._next == len(self._shards):
                return slices
            self._parts = self._parts_of(self._next, raw_bytes_max)
        part = next(self._parts, None)
        if part is not None:
            return [part]
        self._parts = None
        self._pass_shard()
        return self.next_slices(raw_bytes_max)

    def release(self) -> None:
        self._shards = []
        self._next = 0
        self._parts = None
        if self._on_release is not None:
            self._on_release(self)
            self._on_release = None

    def _whole_shards(self, raw_bytes_max: int) -> list[ShardSlice]:
        """Whole shards as long as they fit; none when the next one is too large by itself, or at
        the end.
        """
        slices: list[ShardSlice] = []
        room_bytes = raw_bytes_max
        while self._next < len(self._shards):
            index, shard = self._next, self._shards[self._next]
            room_bytes -= sum(map(len, shard)) + sum(map(len, shard.values()))
            if room_bytes < 0:
                break
            if shard:
                slices.append(ShardSlice(index, self._sums_a[index], self._sums_b[index], shard))
            self._pass_shard()
        return slices

    def _pass_shard(self) -> None:
        # The image keeps no shard longer than it must: after a fold the old dict would be held
        # twice.
        self._shards[self._next] = {}
        self._next += 1

    def _parts_of(self, index: int, raw_bytes_max: int) -> Iterator[ShardSlice]:
        shard = self._shards[index]
        left = Digest(len(shard), self._sums_a[index], self._sums_b[index])
        for part in _parts(shard, raw_bytes_max):
            if len(part) == left.count:
                sums = left
            else:
                sums = digest_of(part.items())
                left = Digest(
                    left.count - sums.count, (left.a - sums.a) & MASK, (left.b - sums.b) & MASK
                )
            yield ShardSlice(index, sums.a, sums.b, part)


def _parts(shard: dict[bytes, bytes], raw_bytes_max: int) -> Iterator[dict[bytes, bytes]]:
    entries = iter(shard.items())
    part: dict[bytes, bytes] = {}
    room_bytes = raw_bytes_max
    for key, value in entries:
        size_bytes = len(key) + len(value)
        if part and (size_bytes > room_bytes or len(part) == PART_ENTRIES_MAX):
            yield part
            part, room_bytes = {}, raw_bytes_max
        part[key] = value
        room_bytes -= size_bytes
    if part:
        yield part


def split(part: ShardSlice) -> tuple[ShardSlice, ShardSlice]:
    """Two halves by entry count, each with its exact sums: for a writer whose chunk came out too
    large.

    Raises:
        ValueError: fewer than two entries.
    """
    if len(part.entries) < 2:
        raise ValueError(f"a slice of {len(part.entries)} entries cannot be split")
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
