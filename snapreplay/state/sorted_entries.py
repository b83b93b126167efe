"""The entries of a map in the order of their keys, kept up while keys come and go. Pure.

The entries are in blocks of some hundred: a key that comes or goes moves only those of its block. The keys and the
values of a block are two lists. A slice of a list loads many objects at once, so their cache misses overlap; in a dict,
one lookup waits for the other. The keys of a block never change while it is read: a block that a reader may hold is
copied before a key comes or goes.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from snapreplay.state.steps import Steps

K = TypeVar("K", bound=Any)
V = TypeVar("V")

BLOCK_ENTRIES = 512
"""A block is split when it has twice as many."""

FIRST_PART_ENTRIES, PART_ENTRIES_MAX = 8, 64
"""Entries of the first part of a range; each further part has twice as many as the one before, up to the maximum."""

# A prototype of our own: types set on the attribute of `pythonapi` would hold for everybody in this process.
_hide_from_collector = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_UnTrack", ctypes.pythonapi))
"""For lists of objects that refer to nothing, so they are in no cycle. To visit a million entries takes 40 ms."""

_SAMPLES, _BUCKETS = 4096, 1024
"""Number of sampled keys, whose order divides all keys into buckets before these are sorted; buckets at most."""


class Place(NamedTuple):
    """A place between two entries: before entry `at` of a block."""

    block: int
    at: int


class KeyBounds(NamedTuple):
    """The bounds of a range: keys that begin with `prefix`, and with `start <= key < end`. None bounds nothing."""

    prefix: Any = None
    start: Any = None
    end: Any = None


EVERYTHING = KeyBounds()


class SortedPart(NamedTuple, Generic[K, V]):
    """A part of a range: some keys, in order, and their values. Not empty."""

    keys: list[K]
    values: list[V]


class SortedEntries(Generic[K, V]):
    """Each key once. Memory: 16 bytes per key, and the keys and values. No key or value may be a container, because the
    garbage collector does not visit them."""

    def __init__(self, blocks: Iterable[SortedPart[K, V]] = ()) -> None:
        """Take `blocks`: in order, each sorted."""
        self._blocks = list(blocks)
        self._lasts = [block.keys[-1] for block in self._blocks]
        # A block is our own if it was made or copied since the last read began.
        self._reads = 0
        self._made_at = [0] * len(self._blocks)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key; add the key if it is new."""
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            self._append(key, value)
            return
        keys, values = self._blocks[number]
        at = bisect_left(keys, key)
        if keys[at] == key:
            values[at] = value
            return
        keys, values = self._own(number)
        keys.insert(at, key)
        values.insert(at, value)
        self._split_if_large(number)

    def remove(self, key: K) -> None:
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            return
        keys = self._blocks[number].keys
        at = bisect_left(keys, key)
        if keys[at] != key:
            return
        keys, values = self._own(number)
        del keys[at], values[at]
        if keys:
            self._lasts[number] = keys[-1]
        else:
            del self._blocks[number], self._lasts[number], self._made_at[number]

    def _before(self, key: K) -> Place:
        """Return the place before the first key that is not smaller than this one."""
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            return self._end
        return Place(number, bisect_left(self._blocks[number].keys, key))

    def _behind(self, part: Any, part_of: Callable[[K], Any]) -> Place:
        """Return the place behind all keys with `part_of(key) <= part`, which must grow as the keys do."""
        number = bisect_right(self._lasts, part, key=part_of)
        if number == len(self._blocks):
            return self._end
        return Place(number, bisect_right(self._blocks[number].keys, part, key=part_of))

    @property
    def _end(self) -> Place:
        return Place(len(self._blocks), 0)

    def within(self, bounds: KeyBounds = EVERYTHING, *, reverse: bool = False) -> Iterator[SortedPart[K, V]]:
        """Iterate over the keys in these bounds as they are now, even if some come or go meanwhile. Values are those
        at the time when their part is read.
        """
        first, end = Place(0, 0), self._end
        if bounds.prefix is not None:
            length = len(bounds.prefix)
            first = self._before(bounds.prefix)
            end = self._behind(bounds.prefix, lambda key: key[:length])
        if bounds.start is not None:
            first = max(first, self._before(bounds.start))
        if bounds.end is not None:
            end = min(end, self._before(bounds.end))
        self._reads += 1
        blocks = self._blocks[first.block : end.block + 1]
        end_in_last = end.at if end.block < len(self._blocks) else None
        return _parts(blocks, first.at, end_in_last, reverse=reverse)

    def _own(self, number: int) -> SortedPart[K, V]:
        if self._made_at[number] != self._reads:
            keys, values = self._blocks[number]
            self._blocks[number] = _block(keys.copy(), values.copy())
            self._made_at[number] = self._reads
        return self._blocks[number]

    def _append(self, key: K, value: V) -> None:
        if not self._blocks:
            self._blocks, self._lasts, self._made_at = ([_block([key], [value])], [key], [self._reads])
            return
        last = len(self._blocks) - 1
        keys, values = self._own(last)
        keys.append(key)
        values.append(value)
        self._lasts[last] = key
        self._split_if_large(last)

    def _split_if_large(self, number: int) -> None:
        block = self._blocks[number]
        if len(block.keys) >= 2 * BLOCK_ENTRIES:
            self._blocks[number : number + 1] = blocks_of(*block)
            self._lasts.insert(number, block.keys[BLOCK_ENTRIES - 1])
            self._made_at[number : number + 1] = [self._reads] * 2


def blocks_of(keys: list[K], values: list[V]) -> list[SortedPart[K, V]]:
    starts = range(0, len(keys), BLOCK_ENTRIES)
    return [_block(keys[n : n + BLOCK_ENTRIES], values[n : n + BLOCK_ENTRIES]) for n in starts]


def _block(keys: list[K], values: list[V]) -> SortedPart[K, V]:
    _hide_from_collector(keys)
    _hide_from_collector(values)
    return SortedPart(keys, values)


def with_others(
    entries: SortedEntries[K, V], others: Iterable[K], value_of: Callable[[K], V], bounds: KeyBounds, *, reverse: bool
) -> Iterator[SortedPart[K, V]]:
    """Read as `SortedEntries.within`, with a few more keys. A key that is in both comes once. Values may be read one
    part before they are returned."""
    found, keys = entries.within(bounds, reverse=reverse), sorted(others)
    few = SortedEntries([SortedPart(keys, keys)] if keys else ()).within(bounds, reverse=reverse)
    inside = [key for part in few for key in part.keys]
    if not inside:
        return found
    also = ((key, value_of(key)) for key in inside)
    has = (entry for part in found for entry in zip(*part, strict=True))
    merged = merge(has, also, key=itemgetter(0), reverse=reverse)
    once = (next(same) for _, same in groupby(merged, itemgetter(0)))
    return (SortedPart([key], [value]) for key, value in once)


def _parts(
    blocks: list[SortedPart[K, V]], first: int, end_in_last: int | None, *, reverse: bool
) -> Iterator[SortedPart[K, V]]:
    size, last = FIRST_PART_ENTRIES, len(blocks) - 1
    for number in range(last, -1, -1) if reverse else range(last + 1):
        keys, values = blocks[number]
        start = first if number == 0 else 0
        end = end_in_last if number == last and end_in_last is not None else len(keys)
        while start < end:
            if reverse:
                low = max(start, end - size)
                yield SortedPart(keys[low:end][::-1], values[low:end][::-1])
                end = low
            else:
                high = min(start + size, end)
                yield SortedPart(keys[start:high], values[start:high])
                start = high
            size = min(2 * size, PART_ENTRIES_MAX)


def sorting(groups: Iterable[Mapping[K, V]]) -> Steps[SortedEntries[K, V]]:
    """Sort entries that come in groups, each key once, in steps of about a millisecond: a million in one go would take
    a second. A sample of the keys divides them into buckets, which are sorted one by one."""
    parts: list[Mapping[K, V]] = []
    for group in groups:
        parts.append(group)
        yield
    count = sum(map(len, parts))
    apart = max(1, count // _SAMPLES)
    samples: list[K] = []
    for number, part in enumerate(parts):
        # Not always from the first key of a group on: its keys may be in some order.
        samples += islice(part, number % apart, None, apart)
        yield
    samples.sort()
    in_bucket = max(1, len(samples) * BLOCK_ENTRIES // max(1, count), len(samples) // _BUCKETS)
    borders = samples[in_bucket::in_bucket]
    buckets: list[dict[K, V]] = [{} for _ in range(len(borders) + 1)]
    yield
    parts.reverse()
    while parts:
        # Each group is freed when it is distributed: freeing all at the end would take 10 ms (measured).
        for key, value in parts.pop().items():
            buckets[bisect_right(borders, key)][key] = value
        yield
    blocks: list[SortedPart[K, V]] = []
    buckets.reverse()
    while buckets:
        blocks += sorted_bucket(buckets.pop())
        yield
    return SortedEntries(blocks)


def sorted_bucket(bucket: Mapping[K, V]) -> list[SortedPart[K, V]]:
    keys = sorted(bucket)
    return blocks_of(keys, list(map(bucket.__getitem__, keys)))
