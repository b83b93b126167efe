"""The keys of a map in their order, kept up while keys come and go. Pure.

Blocks of some hundred keys: a key that comes or goes moves only those of its block. What is being read is never
changed: a block that a reader may hold is copied before the first change to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

from snapreplay.state.steps import Steps

K = TypeVar("K", bound=Any)

BLOCK_KEYS = 512
"""A block is split when it has twice as many."""

_SAMPLES, _BUCKETS = 4096, 1024
"""Keys that say how to distribute all others before they are sorted; groups of them at most."""


class Place(NamedTuple):
    """Between two keys: before key `at` of a block."""

    block: int
    at: int


class Bounds(NamedTuple):
    """Of a range: keys that begin with `prefix`, and with `start <= key < end`. None bounds nothing."""

    prefix: Any = None
    start: Any = None
    end: Any = None


class SortedKeys(Generic[K]):
    """Each key once. Memory: 8 bytes per key, and the keys."""

    def __init__(self, blocks: Iterable[list[K]] = ()) -> None:
        """`blocks`: not empty, each in order, and all of them in order."""
        self._blocks = list(blocks)
        self._lasts = [block[-1] for block in self._blocks]
        # A block is our own if it was made or copied since the last read began.
        self._reads = 0
        self._made_at = [0] * len(self._blocks)

    def put(self, key: K, *, present: bool) -> None:
        """Have the key or do not have it, whatever was before."""
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            if present:
                self._append(key)
            return
        block = self._blocks[number]
        at = bisect_left(block, key)
        if (block[at] == key) == present:
            return
        block = self._own(number)
        if present:
            block.insert(at, key)
            self._split_if_large(number)
        else:
            del block[at]
            if block:
                self._lasts[number] = block[-1]
            else:
                del self._blocks[number], self._lasts[number], self._made_at[number]

    def before(self, key: K) -> Place:
        """Return the place before the first key that is not smaller than this one."""
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            return self.end
        return Place(number, bisect_left(self._blocks[number], key))

    def behind(self, part: Any, part_of: Callable[[K], Any]) -> Place:
        """Return the place behind all keys with `part_of(key) <= part`, which must grow as the keys do."""
        number = bisect_right(self._lasts, part, key=part_of)
        if number == len(self._blocks):
            return self.end
        return Place(number, bisect_right(self._blocks[number], part, key=part_of))

    @property
    def start(self) -> Place:
        return Place(0, 0)

    @property
    def end(self) -> Place:
        return Place(len(self._blocks), 0)

    def within(self, bounds: Bounds, *, reverse: bool = False) -> Iterator[K]:
        """As `between`, by values."""
        first, behind = self.start, self.end
        if bounds.prefix is not None:
            length = len(bounds.prefix)
            first = self.before(bounds.prefix)
            behind = self.behind(bounds.prefix, lambda key: key[:length])
        if bounds.start is not None:
            first = max(first, self.before(bounds.start))
        if bounds.end is not None:
            behind = min(behind, self.before(bounds.end))
        return self.between(first, behind, reverse=reverse) if first < behind else iter(())

    def between(self, start: Place, end: Place, *, reverse: bool = False) -> Iterator[K]:
        """Iterate over the keys between two places as they are now, whatever comes or goes meanwhile."""
        self._reads += 1
        blocks = self._blocks[start.block : end.block + 1]
        end_in_last = end.at if end.block < len(self._blocks) else None
        return _keys(blocks, start.at, end_in_last, reverse=reverse)

    def _own(self, number: int) -> list[K]:
        if self._made_at[number] != self._reads:
            self._blocks[number] = self._blocks[number].copy()
            self._made_at[number] = self._reads
        return self._blocks[number]

    def _append(self, key: K) -> None:
        if not self._blocks:
            self._blocks, self._lasts, self._made_at = [[key]], [key], [self._reads]
            return
        last = len(self._blocks) - 1
        self._own(last).append(key)
        self._lasts[last] = key
        self._split_if_large(last)

    def _split_if_large(self, number: int) -> None:
        block = self._blocks[number]
        if len(block) >= 2 * BLOCK_KEYS:
            self._blocks[number : number + 1] = block[:BLOCK_KEYS], block[BLOCK_KEYS:]
            self._lasts.insert(number, block[BLOCK_KEYS - 1])
            self._made_at[number : number + 1] = [self._reads] * 2


def with_keys(
    keys: SortedKeys[K], more: Iterable[K], bounds: Bounds, *, reverse: bool
) -> Iterator[K]:
    """Iterate over a range of `keys` as they are now and of a few more, in order, each key once."""
    others = sorted(more)
    found = keys.within(bounds, reverse=reverse)
    if not others:
        return found
    also = SortedKeys([others]).within(bounds, reverse=reverse)
    return (key for key, _ in groupby(merge(found, also, reverse=reverse)))


def _keys(
    blocks: list[list[K]], first: int, end_in_last: int | None, *, reverse: bool
) -> Iterator[K]:
    last = len(blocks) - 1
    numbers = range(last, -1, -1) if reverse else range(last + 1)
    for number in numbers:
        block = blocks[number]
        start = first if number == 0 else 0
        end = end_in_last if number == last and end_in_last is not None else len(block)
        if reverse:
            for at in range(end - 1, start - 1, -1):
                yield block[at]
        elif start == 0 and end == len(block):
            yield from block
        else:
            yield from block[start:end]


def sorting(groups: Iterable[list[K]]) -> Steps[SortedKeys[K]]:
    """Sort keys that come in groups, each key once, in steps of about a millisecond: a million in one go would take a
    second. Some of the keys say which of the others lie together.
    """
    parts: list[list[K]] = []
    for group in groups:
        parts.append(group)
        yield
    count = sum(map(len, parts))
    apart = max(1, count // _SAMPLES)
    # Not the first one of each group: they came in some order.
    samples = sorted(key for n, part in enumerate(parts) for key in part[n % apart :: apart])
    in_bucket = max(1, len(samples) * BLOCK_KEYS // max(1, count), len(samples) // _BUCKETS)
    borders = samples[in_bucket::in_bucket]
    buckets: list[list[K]] = [[] for _ in range(len(borders) + 1)]
    yield
    parts.reverse()
    while parts:
        # What was taken is freed at once: all of it together would take 10 ms (measured).
        for key in parts.pop():
            buckets[bisect_right(borders, key)].append(key)
        yield
    blocks: list[list[K]] = []
    buckets.reverse()
    while buckets:
        blocks += sorted_bucket(buckets.pop())
        yield
    return SortedKeys(blocks)


def sorted_bucket(keys: list[K]) -> Iterable[list[K]]:
    """Returns the blocks of these keys, in order."""
    keys.sort()
    return [keys[n : n + BLOCK_KEYS] for n in range(0, len(keys), BLOCK_KEYS)]
