"""A partition's state as the engine sees it: `Store`. `MapStore` (behind `MapState`) and `CompositeStore` (behind
`Stores`) implement it. Pure.

Life of a batch in a store, and of two batches when the next one is applied while the last one commits:

    begin → (handlers change the view) → staging | rollback    once per batch, or once per record
    sealing → `Sealed`: what changed, digest after it           the batch goes into its transaction
    merge | drop                                                its commit was answered OK | anything else

At most one sealed batch waits. Reads see live objects over staged over sealed over base. `mark()` is taken only while
nothing is sealed. Staging and sealing are done in steps: in one piece they block the event loop for 4 to 14 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.state.digest import DEFAULT_STORE, Digest
from snapreplay.state.steps import Steps

if TYPE_CHECKING:
    from snapreplay.state.calls import CallStore
    from snapreplay.state.timers import Scheduler, Timetable

StateChanges = Mapping[str, Mapping[bytes, bytes | None]]
"""Name of the store → encoded key → encoded value, None for a tombstone; in order of first touch."""


ENTRY_BYTES_MAX = 800_000
"""Encoded key and value together: one entry always fits into one record of 900,000 bytes."""


class Sealed(msgspec.Struct, frozen=True):
    """A batch's effect on a store.

    Attributes:
        changes: only what differs from before the batch.
        digest: of the whole state after the batch.
        store_digests: see `recorded_digests`.
        cleared: names of the stores whose entries were all deleted before these changes.
    """

    changes: dict[str, dict[bytes, bytes | None]]
    digest: Digest
    store_digests: dict[str, Digest] = {}
    cleared: list[str] = []


class ShardSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A whole shard, or a part of a large one, with the digest sums of exactly these entries."""

    index: int
    digest_a: int
    digest_b: int
    entries: dict[bytes, bytes]


class StoreSize(msgspec.Struct, frozen=True):
    """The size of one store of a state: key and value bytes as stored."""

    name: str
    entries: int
    size_bytes: int


class Cursor(Protocol):
    """The store as it was at `mark()`, read slice by slice while processing goes on."""

    digest: Digest
    """Of the whole image."""

    store: str
    """Of the slices that were returned last."""

    def slicing(self, raw_bytes_max: int) -> Steps[Sequence[ShardSlice]]:
        """Return the next slices, all of one store, together at most `raw_bytes_max` bytes, or a single larger entry;
        none at the end. The dicts are the store's own: encode them before `release`, and never change them."""

    def release(self) -> None:
        """Let writes go to the shards again. Idempotent; must be called."""


class Image(Protocol):
    """The image that a full snapshot is made of."""

    @property
    def digest(self) -> Digest:
        """The digest of all entries."""

    @property
    def shard_count(self) -> int:
        """The number of shards that its cursors slice, a power of 2."""

    def mark(self) -> Cursor:
        """Freeze the image until the cursor is released."""


class Clock(Protocol):
    """The place where stream time is set.

    Attributes:
        quiet_before_ms: before this stream time no timer and no entry that expires is due, and no record lies far
            ahead; -1: not known. What is set for an earlier time lowers it.
    """

    stream_time_ms: int
    quiet_before_ms: int


class Store(Protocol):
    """A partition's state as the engine sees it. Not thread-safe; one owner."""

    view: Any
    """What handlers get as `state`."""

    stream_time_ms: int
    """Highest record timestamp so far, -1 before the first. Set before each record."""

    clock: Clock
    """Has the same `stream_time_ms`; setting it there costs less."""

    timetable: Timetable | None = None
    """The timetable of what is due, by stream time; None: nothing ever is."""

    scheduler: Scheduler | None = None
    """The scheduler that handlers set timers with; None: the app has none."""

    calls: CallStore | None = None
    """The store of pending calls to the outside; None: the app declares none."""

    is_sealed: bool
    """Whether a sealed batch waits for `merge` or `drop`."""

    @property
    def digest(self) -> Digest:
        """The digest of the base plus the sealed batch. Must not be read while a batch is being sealed."""

    @property
    def store_digests(self) -> dict[str, Digest]:
        """The digests by store, see `recorded_digests`; as `digest`."""

    @property
    def size_bytes(self) -> int:
        """Key and value bytes in the base. Memory: about 1.6 times this plus 100 per entry."""

    @property
    def sizes(self) -> tuple[StoreSize, ...]:
        """The size of each store, also of those that the app does not have."""

    @property
    def shard_count(self) -> int:
        """The shard count of a snapshot taken now; recorded in its manifest."""

    def begin(self) -> None:
        """Begin a batch."""

    def staging(self) -> Steps[None]:
        """Encode what was touched since `begin`. After an error, and if it is abandoned half-way, nothing is staged.
        Raises RecordError: a value would not read back as it is, is too large, or is stored under two keys."""

    def rollback(self) -> None:
        """Drop what was touched since `begin`. Never raises."""

    def sealing(self) -> Steps[Sealed]:
        """Seal what was staged. If it is abandoned half-way, only `drop` may follow. RuntimeError: a sealed batch
        waits."""

    def merge(self) -> None:
        """Make the sealed batch, which was committed, part of the base. RuntimeError: there is none."""

    def drop(self) -> None:
        """Forget the sealed batch and all that came after it."""

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        """Fold a batch's changes into the base in a recovery; first clear the stores named in `cleared`. Raises
        UnknownStore: the state cannot hold entries of another store."""

    def retire(self) -> None:
        """Let sealed batches clear the stores that the app has retired; a recovery follows what was recorded."""

    def refusing_pending(self) -> Steps[None]:
        """Read the names of all pending timers and calls; nothing may be merged meanwhile. Raises UnknownTimer,
        UnknownCall: the app has no handler for one."""
        ...

    def checking(self, each_shard_max: int | None = None) -> Iterator[int]:
        """Read every entry of the base, or so many of each shard, as a handler would. Yields how many a step read.
        Batches may be merged between two steps. Raises UnknownStore, StoredValueUnreadable."""
        ...

    def mark(self) -> Cursor:
        """Begin a cursor over the state as it is now. RuntimeError: a batch is sealed, or another cursor is open."""

    def settle(self) -> bool:
        """Do about a millisecond of the work that the last snapshot left. True if none is left."""
        ...

    def clear(self, shard_count: int = ...) -> None:
        """Return to the state that the factory made. Raises DamagedError: no possible number of shards."""

    def freeing(self) -> Steps[None]:
        """Become empty in steps: freeing a million entries at once takes a tenth of a second."""
        ...

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        """Take over entries of a snapshot in a recovery, dicts included; sums are added, not computed. Raises
        DamagedError: entries of another shard. UnknownStore: as `apply_changes`."""

    def indexing(self) -> Steps[None]:
        """Sort the keys of ordered maps in a recovery. Nothing may be written meanwhile. Raises
        StoredValueUnreadable: a stored key has another type."""
        ...

    def committed_view(self) -> Any:
        """Read-only view of the last committed batch: a mapping, or an object with one for each store."""


def largest_entry_bytes(entries: Mapping[bytes, bytes | None]) -> int:
    """Return encoded key and value together, in bytes; 0 without entries. A tombstone has only its key."""
    return max((len(key) + len(value or b"") for key, value in entries.items()), default=0)


TIMERS_STORE = "_timers"
"""The timers of keys."""
PERIODS_STORE = "_periods"
"""Of each periodic timer, when it is due next."""
CALLS_STORE = "_calls"
"""The calls to the outside that have no answer yet."""
RESERVED = (CALLS_STORE, PERIODS_STORE, TIMERS_STORE)
"""Stores that an app has with its timers and its calls. Other names begin with a letter."""


class UnknownStore(StopError):
    """The state has entries of a store that the app neither declares nor retires: it was renamed or forgotten.

    Safe: The partition stops before this code writes anything, and the entries stay as they are. Entries that `retired`
    has deleted do not come back.
    """


def unknown_store(
    store: str, *known: str, entry_count: int | None = None, declared: Iterable[str] = ()
) -> UnknownStore:
    """Return the error for `store`.

    Args:
        known: the stores that the app has, those of its timers too.
        entry_count: how many entries are in it; None: not known yet.
        declared: names that were retired.
    """
    entries = "entries" if entry_count is None else counted(entry_count, "entry")
    own = [name for name in known if name not in RESERVED]
    named = own != [DEFAULT_STORE]
    has = f"it has {', '.join(own)}" if named else "its state has no named stores"
    kept = "" if named else f"{DEFAULT_STORE}=MapState(…), "
    of_timers = (PERIODS_STORE, TIMERS_STORE)
    reserved = of_timers if store in of_timers else ()
    retired = "".join(f'"{name}", ' for name in sorted({*declared, store, *reserved}))
    again = (
        f"If the store was renamed, give it its name {store!r} again:"
        f" `state=lambda: Stores({kept}{store}=MapState(…), …)`"
    )
    if reserved:
        again = "It has the timers that the app had: keep a handler, `@app.timer(…)`, until they have fired"
    if store == CALLS_STORE:
        again = "It has the calls that have no answer yet: keep `@app.call(…)` until they have one"
    return UnknownStore(
        f"the log has {entries} in the store {store!r}, which this app neither has nor retires: {has}",
        hint=f"nothing is lost. {again}. If it is no longer needed, retire it, and the next"
        f" batch deletes its entries: `Stores({kept}…, retired=({retired.strip()}))`",
        store=store,
        entry_count=entry_count,
    )
