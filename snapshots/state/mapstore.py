"""The engine's side of a map: the batch in progress above the committed entries. Pure.

Layers, read from the top: live objects (touched since `begin`) → staged bytes (this batch) → sealed
bytes (the batch that is committing) → shards (committed). Changes, digest and rollback all fall out
of `stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar
from zlib import crc32

from msgspec import MsgspecError

from snapreplay.snapshots.errors import RecordError
from snapreplay.snapshots.state.committed import CommittedView
from snapreplay.snapshots.state.contract import Changes, Cursor, Sealed, ShardSlice
from snapreplay.snapshots.state.digest import Digest
from snapreplay.snapshots.state.fidelity import SCALARS, Owners
from snapreplay.snapshots.state.keys import UNENCODABLE, KeyCodec
from snapreplay.snapshots.state.shards import SHARD_COUNT, Pending, Shards, Staged
from snapreplay.snapshots.state.values import ValueCodec, shared_object

K = TypeVar("K", bound=str | bytes | int)
V = TypeVar("V")


class Mark(Enum):
    """Stands where no value is; None is a value."""

    ABSENT = 0
    DELETED = 1


ABSENT: Final = Mark.ABSENT
DELETED: Final = Mark.DELETED


class MapStore(Generic[K, V]):
    """A `Store`.

    Attributes:
        live: touched keys → decoded value, or DELETED; by first touch. The view writes to keys that
            are in it.
        added: net number of keys that `live` adds to the layers below it; kept by the view and
            `touch`.
    """

    keeps_changes = True
    can_roll_back = True
    can_drop = True

    def __init__(
        self, view: Any, keys: KeyCodec[K], values: ValueCodec[V], entry_bytes_max: int
    ) -> None:
        self.view = view
        self.stream_time_ms = -1
        self.live: dict[K, V | Literal[Mark.DELETED]] = {}
        self.added = 0
        self._keys = keys
        self._values = values
        self._entry_bytes_max = entry_bytes_max
        # For each key of `live`, in the same order: encoded key, bytes below `live`, shard index.
        self._places: list[tuple[bytes, bytes | None, int]] = []
        self._staged: dict[bytes, Staged] = {}
        self._staged_added = 0
        self._sealed: Pending | None = None
        self._sealed_changes: Changes = {}
        self._shards = Shards()

    @property
    def digest(self) -> Digest:
        return self._sealed.digest if self._sealed else self._shards.digest

    @property
    def size_bytes(self) -> int:
        return self._shards.size_bytes

    @property
    def shard_count(self) -> int:
        return self._shards.mask + 1

    def __len__(self) -> int:
        return self.digest.count + self._staged_added + self.added

    # ------------------------------------------------------------------ for the view

    def touch(self, key: K, value: V | Literal[Mark.ABSENT] = ABSENT) -> V | Literal[Mark.ABSENT]:
        """Bring a key that is not in `live` there, with `value`, or else with what the layers below
        hold.

        Returns:
            The value now in `live`; ABSENT (and nothing was brought) if there is none.

        Raises:
            RecordError: msgpack cannot hold the key.
            StopError: the stored value does not have the declared type.
        """
        try:
            encoded = self._keys.pack(key)
        except UNENCODABLE as error:
            raise self._keys.refusal(key, error) from error
        index = crc32(encoded) & self._shards.mask
        below = self._below(encoded, index)
        if value is ABSENT:
            if below is None:
                return ABSENT
            try:
                value = self._values.unpack(below)
            except MsgspecError as error:
                raise self._values.misfit(key, error) from error
        elif below is None:
            self.added += 1
        self.live[key] = value
        self._places.append((encoded, below, index))
        return value

    def has_below(self, key: K) -> bool:
        """Whether the layers under `live` hold the key."""
        encoded = self._keys.encode(key)
        return self._below(encoded, crc32(encoded) & self._shards.mask) is not None

    def sorted_keys(self) -> Iterator[K]:
        """Every key at the time of the call, in the order of the encoded keys: O(n log n)."""
        present = {key: value is not None for key, value in self._sealed_changes.items()}
        present.update((key, staged[0] is not None) for key, staged in self._staged.items())
        present.update(
            (place[0], value is not DELETED)
            for place, value in zip(self._places, self.live.values(), strict=True)
        )
        encoded = [key for key in self._shards if key not in present]
        encoded.extend(key for key, is_present in present.items() if is_present)
        encoded.sort()
        return map(self._keys.unpack, encoded)

    def _below(self, encoded: bytes, index: int) -> bytes | None:
        if self._staged:
            staged = self._staged.get(encoded)
            if staged is not None:
                return staged[0]
        if encoded in self._sealed_changes:
            return self._sealed_changes[encoded]
        return self._shards.lookups[index](encoded)

    # ------------------------------------------------------------------ the life of a batch

    def begin(self) -> None:
        """Forget the objects touched since the last `stage`, and what happened to them."""
        self.live.clear()
        self._places.clear()
        self.added = 0

    rollback = begin

    def stage(self) -> None:
        """See `Store`. On an error everything is as before the call."""
        staged = self._encode_live()
        if self._staged:
            for encoded, (new, below, index) in staged.items():
                earlier = self._staged.get(encoded)
                self._staged[encoded] = (new, earlier[1] if earlier else below, index)
        else:
            self._staged = staged
        self._staged_added += self.added
        self.begin()

    def seal(self) -> Sealed:
        """Raises:
        RuntimeError: a sealed batch is still waiting.
        """
        if self._sealed is not None:
            raise RuntimeError("a sealed batch waits: merge or drop it before the next seal")
        pending = self._sealed = self._shards.weigh(self._staged.items())
        self._sealed_changes = pending.changes
        self._staged = {}
        self._staged_added = 0
        return Sealed(pending.changes, pending.digest)

    def merge(self) -> None:
        """Raises:
        RuntimeError: nothing is sealed.
        """
        if self._sealed is None:
            raise RuntimeError("no sealed batch to merge")
        self._shards.merge(self._sealed)
        self._sealed, self._sealed_changes = None, {}

    def drop(self) -> None:
        self._sealed, self._sealed_changes = None, {}
        self._staged = {}
        self._staged_added = 0
        self.begin()

    def _encode_live(self) -> dict[bytes, Staged]:
        pack, is_flat = self._values.pack, self._values.is_flat
        entry_bytes_max = self._entry_bytes_max
        owners = self._owners()
        staged: dict[bytes, Staged] = {}
        for (key, value), (encoded, below, index) in zip(
            self.live.items(), self._places, strict=True
        ):
            new: bytes | None = None
            if value is not DELETED:
                try:
                    new = pack(value)
                except UNENCODABLE as error:
                    raise self._values.unencodable(key, value, error) from error
                if not is_flat(value):
                    self._values.verify(key, value, new, owners)
                if len(new) + len(encoded) > entry_bytes_max:
                    raise _too_large(key, len(new) + len(encoded), entry_bytes_max)
            if new != below:
                staged[encoded] = (new, below, index)
        return staged

    def _owners(self) -> Owners:
        """The mutable values in `live`: each may stand under one key only."""
        if self._values.shareable:
            return {}
        owners: Owners = {}
        for key, value in self.live.items():
            if type(value) in SCALARS or value is DELETED:
                continue
            other_key, _ = owners.setdefault(id(value), (key, ""))
            if other_key is not key:
                raise shared_object(f"[{key!r}]", f"[{other_key!r}]", key)
        return owners

    # ------------------------------------------------------------------ snapshot and recovery

    def apply_changes(self, changes: Changes) -> None:
        self._shards.merge(self._shards.weigh(self._against_base(changes)))

    def mark(self) -> Cursor:
        if self._sealed is not None:
            raise RuntimeError("a sealed batch waits: a snapshot is of committed batches only")
        return self._shards.mark()

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.drop()
        self._shards.reset(shard_count)

    def load(self, slices: Iterable[ShardSlice]) -> None:
        self._shards.load(slices)

    def loaded(self) -> None:
        """Nothing is left to do: `load` took over every slice."""

    def committed_view(self) -> Mapping[K, V]:
        return CommittedView(self._keys, self._values, self._shards)

    def _against_base(self, changes: Changes) -> Iterator[tuple[bytes, Staged]]:
        lookups, mask = self._shards.lookups, self._shards.mask
        for key, new in changes.items():
            index = crc32(key) & mask
            yield key, (new, lookups[index](key), index)


def _too_large(key: object, size_bytes: int, size_bytes_max: int) -> RecordError:
    return RecordError(
        f"state[{key!r}] takes {size_bytes} bytes with its key, the limit is {size_bytes_max}",
        hint="spread it over several keys: an entry must fit into one Kafka record",
        key=key,
        size_bytes=size_bytes,
        size_bytes_max=size_bytes_max,
    )
