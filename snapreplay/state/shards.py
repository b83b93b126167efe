"""The committed entries of a map: encoded key → encoded value, in shards, with one digest. Pure.

A snapshot freezes every shard at once. Writes during a snapshot go into a small dict on top of each
frozen one, which is folded in after the snapshot, some shards per batch. Copying a shard at the first
write after the mark would be simpler, but the first batch touches nearly every shard, which took 25
to 120 ms in one go for 1 M keys (measured). Folding costs 0.1 µs per entry written meanwhile.

The digest's sums are kept only of the whole. Sums per shard would cost 0.2 µs per update. The cursor
computes them from the bytes instead, which proves at every snapshot that the digest is true. Until the first write
they are those that were loaded; the writer hashes what it has written in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any
from zlib import crc32

from xxhash import xxh64_intdigest

from snapreplay import engine
from snapreplay.errors import DamagedError
from snapreplay.state.contract import ShardSlice
from snapreplay.state.cursor import Shard, ShardCursor, dict_of, entries_of
from snapreplay.state.digest import EMPTY, MASK, SEED, Digest
from snapreplay.state.steps import Steps

SHARD_COUNT = 1024

BLOCK = 512
"""Entries written in one step."""

SETTLE_ENTRIES = 1024
"""Entries folded in one go after a snapshot, which takes a millisecond (measured in a whole service)."""

Slot = tuple[bytes, bytes | None, int]
"""Encoded key, its value or None as it was looked up, index of its shard."""

Slots = list[Slot] | engine.Places

_ABSENT = object()


@dataclass(frozen=True)
class _Undo:
    """The entries as they were before a batch was written."""

    places: Slots
    digest: Digest
    size_bytes: int

    @cached_property
    def values(self) -> dict[bytes, bytes | None]:
        """Old values by key, for views of the committed state."""
        return {key: old for key, old, _ in self.places} if isinstance(self.places, list) else self.places.values()

    @cached_property
    def values_by_shard(self) -> dict[int, dict[bytes, bytes | None]]:
        found: dict[int, dict[bytes, bytes | None]] = {}
        for key, old, index in self.places:
            found.setdefault(index, {})[key] = old
        return found


class Shards:
    """The shards of a map, not thread-safe; one owner.

    `lookups[crc32(key) & mask](key)` returns the value of an encoded key, or None if it is absent. Callers spell it
    out, because every record passes there; the engine reads `targets` that are shards. `version`: changes when a batch
    is kept or undone, and with `reset`. Writing a batch changes no committed value."""

    def __init__(self, shard_count: int = SHARD_COUNT, *, compact: bool = True) -> None:
        """Become empty. `compact`: let the engine hold the entries. An index that shares their objects needs dicts."""
        self._new_shard = engine.compiled.Shard if compact and engine.compiled is not None else dict
        self.lookups: list[Callable[[bytes], bytes | None]] = []
        self.version = 0
        # Where writes go: the shard itself, or, from a mark until it is settled, a dict on top of
        # it in which None stands for a deleted key.
        self.targets: list[Any] = []
        self._shards: list[Shard] = []
        self._cursor: ShardCursor | None = None
        self.unsettled: list[int] = []
        self.reset(shard_count)

    def reset(self, shard_count: int) -> None:
        """Become empty. A cursor that is still open keeps its image. Raises DamagedError: not a power of two in [1,
        65536]."""
        if not 1 <= shard_count <= 65536 or shard_count & (shard_count - 1):
            raise DamagedError(
                f"the number of shards is {shard_count}, but it must be a power of two, at most 65536",
                shard_count=shard_count,
            )
        self.mask = shard_count - 1
        self.version += 1
        self.digest = EMPTY
        self._sums: dict[int, tuple[int, int]] = {}
        self.size_bytes = 0
        self._undo: _Undo | None = None
        if self._is_bare and len(self._shards) == shard_count:  # as in a new process with many partitions
            return
        self._shards = [self._new_shard() for _ in range(shard_count)]
        self.targets[:] = self._shards
        self.lookups[:] = [shard.get for shard in self._shards]
        self.unsettled, self._cursor = [], None

    @property
    def _is_bare(self) -> bool:
        """Whether each shard is empty and has nothing on top."""
        return self._cursor is None and not self.unsettled and not any(self._shards)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over all encoded keys, in no order. Must not be continued after a write."""
        return chain.from_iterable(self.by_shard())

    def by_shard(self) -> Iterator[Mapping[bytes, bytes]]:
        """Yield the entries of one shard after the other. Must not be continued after a write."""
        for shard, target in zip(self._shards, self.targets, strict=True):
            if target is shard:
                yield dict_of(shard)
            else:
                merged = {**dict_of(shard), **target}
                yield {key: value for key, value in merged.items() if value is not None}

    def writing(self, places: Slots, changes: dict[bytes, bytes | None]) -> Steps[None]:
        """Apply a batch, digest included. Lookups see it at once. `keep` makes it the last committed batch;
        `undo` takes it back, even before the last step.

        Args:
            places: of the keys of `changes`, in the same order, with the present values.
            changes: writes that change nothing are removed from it.

        Raises:
            RuntimeError: the batch before was neither kept nor undone.
        """
        if self._undo is not None:
            raise RuntimeError("a batch waits: keep or undo it before the next one")
        self._undo = _Undo(places, self.digest, self.size_bytes)
        unchanged: list[bytes] = []
        values = list(changes.values())
        for start in range(0, max(len(places), len(values)), BLOCK):
            self._write(places[start : start + BLOCK], values[start : start + BLOCK], unchanged)
            yield
        for key in unchanged:
            del changes[key]

    def _write(self, places: Slots, values: Sequence[bytes | None], unchanged: list[bytes]) -> None:
        if engine.compiled is not None:
            self._count(*engine.compiled.write(places, values, self.targets, self._shards, unchanged))
            return
        self._sums = {}
        hash64, targets, shards = xxh64_intdigest, self.targets, self._shards
        count, sum_a, sum_b = self.digest.count, self.digest.a, self.digest.b
        size_bytes = self.size_bytes
        for (key, old, index), new in zip(places, values, strict=True):
            if new == old:
                unchanged.append(key)
                continue
            key_hash = hash64(key, SEED)
            target = targets[index]
            if new is None:
                count -= 1
                size_bytes -= len(key)
                if target is shards[index]:
                    del target[key]
                else:
                    target[key] = None
            else:
                sum_a += hash64(new, key_hash)
                sum_b += hash64(key, hash64(new, SEED))
                size_bytes += len(new)
                target[key] = new
            if old is None:
                count += 1
                size_bytes += len(key)
            else:
                sum_a -= hash64(old, key_hash)
                sum_b -= hash64(key, hash64(old, SEED))
                size_bytes -= len(old)
        self.digest = Digest(count, sum_a & MASK, sum_b & MASK)
        self.size_bytes = size_bytes

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Fold in, in a recovery, the changes of a committed batch, in one go."""
        if self._undo is not None:
            raise RuntimeError("a batch waits: keep or undo it before changes are applied")
        written = None
        if engine.compiled is not None and isinstance(changes, dict):
            written = engine.compiled.change(changes, self.targets)
        if written is not None:
            self._count(*written)
        else:
            mask, lookups = self.mask, self.lookups
            indexes = [crc32(key) & mask for key in changes]
            places = [(k, lookups[i](k), i) for k, i in zip(changes, indexes, strict=True)]
            self._write(places, list(changes.values()), [])
        self.keep()

    def _count(self, count: int, sum_a: int, sum_b: int, size_bytes: int) -> None:
        """Add what the engine has written to the digest and the size."""
        self._sums = {}
        self.digest = self.digest.plus(Digest(count, sum_a, sum_b))
        self.size_bytes += size_bytes

    def prefetch(self, records: Sequence[Any], *, are_texts: bool) -> int:
        """Prefetch the entries of the keys of these records, texts in UTF-8 or bytes. Return how many probably exist; 0
        without the engine."""
        if engine.compiled is None or self._new_shard is dict:
            return 0
        return engine.compiled.prefetch(list(records), are_texts, self._shards)

    def keep(self) -> None:
        self._undo = None
        self.version += 1
        if self.unsettled:
            self._settle(SETTLE_ENTRIES)

    def undo(self) -> None:
        undo, self._undo = self._undo, None
        if undo is None:
            return
        self.version += 1
        for key, old, index in undo.places:
            target = self.targets[index]
            if old is None and target is self._shards[index]:
                target.pop(key, None)
            else:
                target[key] = old
        self.digest, self.size_bytes = undo.digest, undo.size_bytes

    @property
    def waiting(self) -> Slots:
        """The places of the batch that is neither kept nor undone."""
        return [] if self._undo is None else self._undo.places

    @property
    def committed_digest(self) -> Digest:
        return self.digest if self._undo is None else self._undo.digest

    def committed_value(self, key: bytes) -> bytes | None:
        """Look up as `lookups` do, but as of the last batch that was kept."""
        if self._undo is not None and key in self._undo.values:
            return self._undo.values[key]
        return self.lookups[crc32(key) & self.mask](key)

    def committed_values(self, keys: Iterable[bytes], values: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Look several keys up, as `committed_value` does one. `values`: what the lookups return for them."""
        if self._undo is None:
            return values
        old = self._undo.values
        return [old.get(key, value) for key, value in zip(keys, values, strict=True)]

    def committed_keys(self) -> list[bytes]:
        """Return all encoded keys as of the last batch that was kept, in no order."""
        if self._undo is None:
            return list(self)
        old = self._undo.values
        keys = [key for key in self if key not in old]
        keys += [key for key, value in old.items() if value is not None]
        return keys

    def committed_behind(self, after: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries as of the last batch that was kept, behind this key, shard by shard and sorted in each.
        Must not be continued after a write."""
        undone = {} if self._undo is None else self._undo.values_by_shard
        first = 0 if after is None else crc32(after) & self.mask
        for index in range(first, self.mask + 1):
            shard, target = self._shards[index], self.targets[index]
            written = target if target is not shard else {}
            if not shard and not written and index not in undone:
                continue
            entries = {**dict_of(shard), **written, **undone.get(index, {})}
            behind = after if index == first else None
            keys = entries if behind is None else [key for key in entries if key > behind]
            yield from ((key, value) for key in sorted(keys) if (value := entries[key]) is not None)

    def take_all(self) -> list[Shard]:
        """Return the shards and become empty: freeing them takes time. A cursor that is still open keeps
        its image."""
        shards = [each for each in (*self._shards, *self.targets) if each]  # an empty one may stay in use
        self.reset(self.mask + 1)
        return shards

    def entries(self, index: int, entries_max: int | None = None) -> list[tuple[bytes, bytes]]:
        """Return the entries of one shard, without what was written since a mark that is not settled."""
        return list(entries_of(self._shards[index], entries_max))

    def mark(self) -> ShardCursor:
        """Freeze every shard: O(shards), plus what an earlier snapshot left to fold in. Raises RuntimeError: another
        cursor has not been released, or a batch is neither kept nor undone."""
        if self._undo is not None:
            raise RuntimeError("a batch waits: a snapshot is of committed batches only")
        if self._cursor is not None:
            raise RuntimeError("a snapshot of this state is being read: release its cursor first")
        self._settle(None)
        cursor = ShardCursor(list(self._shards), self.digest, self._released, self._sums)
        self._cursor = cursor
        self.targets[:] = [{} for _ in self._shards]
        self.lookups[:] = [_layered(t, s) for t, s in zip(self.targets, self._shards, strict=True)]
        return cursor

    def settle(self) -> bool:
        """Fold in a part of what was written during a snapshot. True when nothing is left."""
        if self.unsettled:
            self._settle(SETTLE_ENTRIES)
        return not self.unsettled

    def load(self, slices: Iterable[ShardSlice]) -> None:
        """Take over entries of a snapshot, sums included. Only before the first `mark`. Raises DamagedError: a slice's
        shard does not exist, or its first key belongs to another one."""
        count, sum_a, sum_b = self.digest.count, self.digest.a, self.digest.b
        for part in slices:
            self._check_place(part)
            index, entries = part.index, part.entries
            shard = self._shards[index]
            count -= len(shard)
            if shard or not isinstance(shard, dict):
                shard.update(entries)
            else:
                shard = self._shards[index] = self.targets[index] = entries
                self.lookups[index] = entries.get
            count += len(shard)
            sum_a += part.digest_a
            sum_b += part.digest_b
            of_a, of_b = self._sums.get(index, (0, 0))
            self._sums[index] = (of_a + part.digest_a) & MASK, (of_b + part.digest_b) & MASK
            self.size_bytes += sum(map(len, entries)) + sum(map(len, entries.values()))
        self.digest = Digest(count, sum_a & MASK, sum_b & MASK)

    def _check_place(self, part: ShardSlice) -> None:
        first = next(iter(part.entries), None)
        if not 0 <= part.index <= self.mask or (first is not None and crc32(first) & self.mask != part.index):
            raise DamagedError(
                f"slice for shard {part.index} of {self.mask + 1} holds key {first!r} of another shard",
                index=part.index,
                shard_count=self.mask + 1,
            )

    def _released(self, cursor: ShardCursor) -> None:
        # After a reset the cursor of the old entries no longer counts.
        if self._cursor is cursor:
            self._cursor = None
            self.unsettled = list(range(self.mask + 1))
            self._settle(SETTLE_ENTRIES)

    def _settle(self, entries_max: int | None) -> None:
        settled = 0
        while self.unsettled and (entries_max is None or settled < entries_max):
            index = self.unsettled.pop()
            shard, on_top = self._shards[index], self.targets[index]
            for key, value in on_top.items():
                if value is None:
                    shard.pop(key, None)
                else:
                    shard[key] = value
            settled += len(on_top) + 1
            self.targets[index] = shard
            self.lookups[index] = shard.get


def _layered(on_top: dict[bytes, Any], shard: Shard) -> Callable[[bytes], bytes | None]:
    get_above, get = on_top.get, shard.get

    def lookup(key: bytes) -> bytes | None:
        value: bytes | None = get_above(key, _ABSENT)
        return get(key) if value is _ABSENT else value

    return lookup
