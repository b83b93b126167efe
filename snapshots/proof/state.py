"""The state of a partition as entries: of a snapshot, and after a committed batch (a snapshot before it and the changes
since), proved by the digest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from snapreplay.app import names
from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.records import Manifest, Pointer
from snapreplay.snapshots.log.batches import Batches, ChangesLost, apply_changes
from snapreplay.snapshots.log.loading import NullSink, Sink, SnapshotMissing, loading, named_manifest
from snapreplay.snapshots.log.reading import Waiting, place_of
from snapreplay.snapshots.plan import LogStarts, is_decided, trimmed
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.state.composite import CompositeCursor
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import Digest, digest_of_stores, recorded_digests
from snapreplay.state.shards import SHARD_COUNT, Shards
from snapreplay.state.steps import all_of


def wrong_entries(manifest: Manifest, found: Digest) -> str:
    """Say what is wrong with a snapshot whose entries have another digest."""
    return (
        f"the entries of snapshot {manifest.snapshot_id} have digest {found}, but its manifest says"
        f" {manifest.entries_digest}"
    )


class Entries(NullSink):
    """The entries of a state in shards. The digest is that of the moment, so each batch can be compared with what
    it recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.shard_count = SHARD_COUNT
        self.stores: dict[str, Shards] = {}

    @property
    def digest(self) -> Digest:
        return digest_of_stores({name: each.digest for name, each in self.stores.items()})

    @property
    def store_digests(self) -> dict[str, Digest]:
        """The digests as an increment records them."""
        return recorded_digests({name: each.digest for name, each in self.stores.items()})

    def stored(self) -> Iterator[tuple[str, Iterator[tuple[bytes, bytes]]]]:
        """Yield each store with its keys and values."""
        for name, shards in self.stores.items():
            yield name, chain.from_iterable(shard.items() for shard in shards.by_shard())

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        """Apply a changes record. `cleared`: the stores that its batch clears before."""
        for store in cleared:
            self.stores.pop(store, None)
        for store, entries in changes.items():
            self.stores.setdefault(store, Shards(self.shard_count)).apply(entries)

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.stores, self.shard_count = {}, shard_count

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        self.stores.setdefault(store, Shards(self.shard_count)).load(slices)

    def mark(self) -> CompositeCursor:
        """Begin a cursor over the entries of all stores."""
        return CompositeCursor({name: each.mark() for name, each in sorted(self.stores.items())})


def is_there(pointer: Pointer, moment: Moment) -> bool:
    """Say whether the logs still hold all that a restore from this snapshot needs."""
    starts = LogStarts(moment.log_start, moment.snapshots_start)
    return trimmed(pointer, starts) is None and pointer.manifest_offset < moment.snapshots_end


def manifest_of(logs: Logs, pointer: Pointer) -> Manifest:
    """Return the manifest of a snapshot that is there.

    Raises:
        DamagedError: it is not the one that `pointer` names.
    """
    at = pointer.manifest_offset
    for records in logs.snapshots(at, at + 1):
        return named_manifest(records[0], place_of(records[0]), pointer)
    raise DamagedError(
        f"offset {at} holds no manifest of snapshot {pointer.snapshot_id} as its pointer names it", offset=at
    )


def load(logs: Logs, manifest: Manifest, sink: Sink) -> None:
    """Make `sink` exactly the snapshot's state. Every entry is hashed: false sums would make a wrong state look right.

    Raises:
        DamagedError: one is missing or not what was written, or together they are not what the manifest says.
    """
    topic = names.snapshots_topic(manifest.origin.app_id)
    steps = loading(topic, manifest, sink, verify_sums=True)
    try:
        Waiting(lambda source: logs.snapshots(source.start_offset, source.end_offset)).all_of(steps)
    except SnapshotMissing as error:
        raise DamagedError(error.message) from error


def entries_of(logs: Logs, manifest: Manifest) -> Entries:
    """Return what is in all chunks. Raises as `load`."""
    entries = Entries()
    load(logs, manifest, entries)
    return entries


_TAIL_RECORDS = 64
"""How far from the end the last increment is looked for first; eight times as far each time it is not there."""


class StateUnreachable(StopError):
    """The topics do not lead to the requested state.

    Safe: The logs were only read, and the app continues.
    """


class At(msgspec.Struct, frozen=True):
    """The batch after which a state is asked for: the last one before the first that is out of bounds. None bounds
    nothing.

    `batch`: the last one to count.
    """

    batch: int | None = None

    @property
    def is_latest(self) -> bool:
        return self == At()

    def admits(self, found: Found) -> bool:
        return self.batch is None or found.increment.batch <= self.batch


class StateAfter(NamedTuple):
    """The state of a partition after a batch."""

    after: Found
    entries: Entries


def last_batch(moment: Moment, logs: Logs, at: At) -> Found | None:
    """Return the increment of the batch that `at` means; None when there is none.

    Raises:
        DamagedError: the increment that could be the one cannot be read.
    """
    if not at.is_latest:
        return _last(logs, moment.log_start, moment.log_end, at)
    width = _TAIL_RECORDS
    while True:
        start = max(moment.log_start, moment.log_end - width)
        found = _last(logs, start, moment.log_end, at)
        if found is not None or start == moment.log_start:
            return found
        width *= 8


def state_at(moment: Moment, logs: Logs, at: At) -> StateAfter | None:
    """Return the state; None when no batch is within the bounds.

    Raises:
        StateUnreachable: no snapshot leads there, or nothing that was recorded proves the state.
        DamagedError: what is on the way is not what was written, or the state's digest is another one.
    """
    found = last_batch(moment, logs, at)
    if found is None:
        return None
    damage: DamagedError | None = None
    last = found if at.is_latest else last_batch(moment, logs, At()) or found
    for pointer in bases(moment, found, last):
        try:
            return StateAfter(found, _brought_forward(moment, logs, found, pointer))
        except DamagedError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    raise StateUnreachable(
        f"partition {moment.partition}: no snapshot that leads to batch {found.increment.batch} is left, and the"
        f" increments begin at offset {moment.log_start}",
        hint="ask for a later batch: only what the snapshots kept by `retention.snapshots_kept` need is still there",
    )


def _last(logs: Logs, start_offset: int, end_offset: int, at: At) -> Found | None:
    """Find the last increment; one that cannot be read is passed over, unless it may be the last one."""
    last: Found | None = None
    for step in Batches().of(logs.increments(start_offset, end_offset)):
        found = Found(step.offset, step.increment)
        if not at.admits(found):
            for each in step.unread:
                raise each.error
            break
        last = found
        if found.increment.batch == at.batch:
            break
    return last


def bases(moment: Moment, found: Found, last: Found) -> Iterator[Pointer | None]:
    """Yield snapshots to begin with, the newest first; None for the genesis.

    A snapshot is pointed to by later increments than that of its batch, so those of the `last` one count, too.
    """
    pointers = {*found.increment.pointers, *last.increment.pointers}
    for pointer in sorted(pointers, key=lambda p: p.increment_offset, reverse=True):
        if pointer.increment_offset <= found.offset and is_there(pointer, moment):
            yield pointer
    if moment.log_start == 0 and not is_decided(found.increment):
        yield None


def _brought_forward(moment: Moment, logs: Logs, found: Found, pointer: Pointer | None) -> Entries:
    """Bring the state forward, each entry hashed."""
    entries, since, recorded = Entries(), moment.log_start, found.increment.digest
    if pointer is not None:
        load(logs, manifest_of(logs, pointer), entries)
        since = pointer.increment_offset + 1
    for step in Batches().of(logs.increments(since, found.offset + 1)):
        try:
            all_of(apply_changes(step, entries))
        except ChangesLost as error:
            raise _not_recorded(Found(step.offset, step.increment)) from error
    if recorded is None and pointer is None:
        raise _not_recorded(found)
    if recorded not in {None, entries.digest}:
        raise DamagedError(
            f"partition {moment.partition}: the state after batch {found.increment.batch} has digest {entries.digest},"
            f" but {recorded} was recorded"
        )
    return entries


def _not_recorded(found: Found) -> StateUnreachable:
    return StateUnreachable(
        f"batch {found.increment.batch} at offset {found.offset} recorded no changes: only a replay leads to the state"
        " after it",
        hint="ask for a batch that has a snapshot",
    )
