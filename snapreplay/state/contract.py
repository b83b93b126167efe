"""The two sides of a partition's state.

`State` is what a user may implement when the state is no map. `Store` is what the engine drives;
`MapStore` (behind `MapState`) and `ObjectStore` (around a user's `State`) implement it. Pure.

Life of a batch in a store, and of two batches when the next one is applied while the last one
commits:

    begin → (handlers change the view) → staging | rollback    once per batch, or once per record
    sealing → `Sealed`: what changed, digest after it           the batch goes into its transaction
    merge | drop                                                it was answered OK | anything else

Invariants: at most one sealed batch waits at a time; reads see live objects over staged over sealed
over base; `mark()` is taken only while nothing is sealed, so a snapshot never holds an uncommitted
batch. Staging and sealing are done in steps, because whole they would hold an event loop for 4 to
14 ms with batches of 5,000 (measured in a service that was writing a snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from snapreplay.state.digest import Digest
from snapreplay.state.steps import Steps

StateChanges = Mapping[bytes, bytes | None]
"""Encoded key → encoded value, None for a tombstone; msgpack bytes, ordered by first touch."""


ENTRY_BYTES_MAX = 800_000
"""Encoded key and value together: one entry always fits into one record of 900,000 bytes."""


@runtime_checkable
class State(Protocol):
    """State that is no map: an order book, a numpy array.

    Optional methods `begin()` and `rollback()`, both or none: `rollback` must undo everything since
    the last `begin`. Without them a failed batch costs a full restore, and dead-lettering is
    refused at start.
    """

    def snapshot(self) -> Iterable[tuple[bytes, bytes]]:
        """Entries (key, value) that hold the whole state: unique keys, any order, possibly none.

        Equal states give equal entries, byte for byte, in every process. A generator is asked for more
        between other work of the event loop; nothing is applied meanwhile.
        """

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Discard everything, then become the state that `snapshot()` gave these entries for."""


class Sealed(msgspec.Struct, frozen=True):
    """A batch's effect on a store.

    Attributes:
        changes: only what really differs from before the batch; empty for an `ObjectStore`.
        digest: of the whole state after the batch; None where the store keeps none (`ObjectStore`).
    """

    changes: dict[bytes, bytes | None]
    digest: Digest | None


class ShardSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A whole shard, or a part of a large one, with the digest sums of exactly these entries."""

    index: int
    digest_a: int
    digest_b: int
    entries: dict[bytes, bytes]


class Cursor(Protocol):
    """The store as it was at `mark()`, read slice by slice while processing goes on."""

    digest: Digest
    """Of the whole image."""

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """The next slices, at most `raw_bytes_max` bytes together; none at the end, and only there.

        More bytes only where a single entry is larger. A few milliseconds' work at 4 MiB; a step
        hashes 1,024 entries at most. The dicts are the store's own: encode them before `release`, and
        never change them.
        """

    def release(self) -> None:
        """Let the shards be written to again. Idempotent; must be called, also on failure."""


class Image(Protocol):
    """What a full snapshot is made of."""

    @property
    def digest(self) -> Digest | None:
        """Of all entries; None: not known before they were read."""

    @property
    def shard_count(self) -> int:
        """Into how many shards its cursors slice it, a power of 2."""

    def mark(self) -> Cursor:
        """Freeze it until the cursor is released."""


class Store(Protocol):
    """A partition's state as the engine sees it. Not thread-safe; one owner."""

    view: Any
    """What handlers get as `state`."""

    keeps_changes: bool
    """Whether `Sealed.changes` says what changed, so that recovery may go by changes."""

    can_roll_back: bool

    stream_time_ms: int
    """Highest record timestamp so far, -1 before the first. Set before each record."""

    @property
    def can_drop(self) -> bool:
        """Whether `drop` would bring the committed state back now; if not, it costs a full restore."""

    @property
    def is_sealed(self) -> bool:
        """Whether a sealed batch waits for `merge` or `drop`."""

    @property
    def digest(self) -> Digest | None:
        """Of the merged base plus the sealed batch, if any. Not to be read while one is being sealed."""

    def digesting(self) -> Steps[Digest | None]:
        """As `digest`; where none is kept, all of `snapshot()` is hashed for it: while it goes on, the state must not
        change.

        Raises:
            UsageError: a user's `snapshot()` breaks its contract.
        """

    @property
    def size_bytes(self) -> int:
        """Key and value bytes in the base. Memory: about 1.6 times this plus 100 per entry."""

    @property
    def shard_count(self) -> int:
        """Of a snapshot taken now; recorded in its manifest."""

    def begin(self) -> None: ...

    def staging(self) -> Steps[None]:
        """Encode what was touched since `begin`. Given up half-way, nothing is staged.

        Raises:
            RecordError: a value would not read back equal and of the same type, is too large, or
                stands under two keys.
        """

    def rollback(self) -> None:
        """Drop what was touched since `begin`. Never raises on a store with `can_roll_back`."""

    def sealing(self) -> Steps[Sealed]:
        """What was staged becomes the sealed batch. Given up half-way, only `drop` may follow."""

    def merge(self) -> None:
        """The sealed batch was committed: it becomes part of the base."""

    def drop(self) -> None:
        """Forget the sealed batch and everything staged or touched after it.

        Where `can_drop` was False only `clear` may follow.
        """

    def apply_changes(self, changes: StateChanges) -> None:
        """Recovery: fold one batch's changes into the base, digest included."""

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        """Read every entry of the base as a handler would, or so many of each shard, a step at a time; each gives how
        many were read. Batches may be merged between two steps. Nothing where entries are the user's own.

        Raises:
            StoredValueUnreadable: names the key.
        """

    def mark(self) -> Cursor:
        """
        Raises:
            RuntimeError: a batch is sealed, or another cursor is not released.
            UsageError: a user's `snapshot()` breaks its contract.
        """

    def settle(self) -> bool:
        """Do a part of the work that the last snapshot left to do after its `release`: at most about a
        millisecond. True when none is left; else the next `mark` does it in one go."""

    def clear(self, shard_count: int = ...) -> None:
        """Become as made by the factory, with the shards of the manifest that is to be loaded.

        Raises:
            DamagedError: no possible number of shards.
        """

    def load(self, slices: Iterable[ShardSlice]) -> None:
        """Recovery: take over entries of a snapshot. Sums are added, entries are not hashed again.

        The slices' dicts become the store's own.

        Raises:
            DamagedError: entries of another shard than the slice says.
        """

    def loaded(self) -> None:
        """Recovery: all slices are in. An `ObjectStore` calls the user's `restore` here."""

    def committed_view(self) -> Mapping[Any, Any]:
        """Read-only view of the last committed batch, for other tasks of the same loop.

        Raises:
            UsageError: the state is no map.
        """
