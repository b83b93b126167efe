"""The state of a partition as entries: of a snapshot, brought forward by changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from snapreplay.app import names
from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.records import Manifest, Pointer
from snapreplay.snapshots.log.batches import Batches
from snapreplay.snapshots.log.loading import NullSink, Sink, SnapshotMissing, loading, named_manifest
from snapreplay.snapshots.log.reading import Reading, Waiting, place_of
from snapreplay.snapshots.plan import LogStarts, is_decided, trimmed
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.state.composite import CompositeCursor
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import Digest, digest_of_stores, recorded_digests
from snapreplay.state.shards import SHARD_COUNT, Shards

T = TypeVar("T")


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
    """Return the manifest of a snapshot that is there. Raises DamagedError: `pointer` names another one."""
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
    in_one_go(logs, loading(topic, manifest, sink, verify_sums=True))


def in_one_go(logs: Logs, steps: Reading[T]) -> T:
    """Run steps that read nothing but the snapshots topic. Raises DamagedError if a chunk is missing, and what a
    step raises."""
    try:
        return Waiting(lambda source: logs.snapshots(source.start_offset, source.end_offset)).all_of(steps)
    except SnapshotMissing as error:
        raise DamagedError(error.message) from error


def entries_of(logs: Logs, manifest: Manifest) -> Entries:
    """Return what is in all chunks. Raises as `load`."""
    entries = Entries()
    load(logs, manifest, entries)
    return entries


_TAIL_RECORDS = 64
"""How far from the end the last increment is looked for first; eight times as far each time it is not there."""


def last_batch(moment: Moment, logs: Logs) -> Found | None:
    """Return the last increment; None when there is none. One that cannot be read is skipped."""
    width = _TAIL_RECORDS
    while True:
        start = max(moment.log_start, moment.log_end - width)
        found: Found | None = None
        for step in Batches().of(logs.increments(start, moment.log_end)):
            found = Found(step.offset, step.increment)
        if found is not None or start == moment.log_start:
            return found
        width *= 8


def bases(moment: Moment, last: Found) -> Iterator[Pointer | None]:
    """Yield snapshots from which the state after the last batch can be reached, the newest first; None for the
    genesis."""
    for pointer in sorted(last.increment.pointers, key=lambda p: p.increment_offset, reverse=True):
        if is_there(pointer, moment):
            yield pointer
    if moment.log_start == 0 and not is_decided(last.increment):
        yield None
