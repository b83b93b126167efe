"""The state of a partition as entries: from the chunks of a snapshot, and by recorded changes. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from snapreplay.app import names
from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.records import Manifest, Pointer
from snapreplay.snapshots.format.seal import SealRefused
from snapreplay.snapshots.log.loading import Nowhere, Sink, SnapshotMissing, loading, named_manifest
from snapreplay.snapshots.log.place import place_of
from snapreplay.snapshots.log.reading import Waiting
from snapreplay.snapshots.plan import LogStarts, trimmed
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.state.composite import CompositeCursor
from snapreplay.state.contract import ShardSlice, StateChanges
from snapreplay.state.digest import Digest, digest_of, digest_of_stores, recorded_digests
from snapreplay.state.shards import SHARD_COUNT, Shards


def wrong_entries(manifest: Manifest, found: Digest) -> str:
    """Say what is wrong with a snapshot whose entries have another digest."""
    return (
        f"the entries of snapshot {manifest.snapshot_id} have digest {found}, but its manifest says"
        f" {manifest.entries_digest}"
    )


Changes = Mapping[bytes, bytes | None]
"""Of one store; a value that is None deletes its key."""


class _Changing(Nowhere, ABC):
    """Entries by store, a `Sink`, and what changes records do to them."""

    stores: dict[str, Any]

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        """Apply a changes record. `cleared`: the stores that its batch clears before."""
        for store in cleared:
            self.stores.pop(store, None)
        for store, entries in changes.items():
            self._write(store, entries)

    @abstractmethod
    def _write(self, store: str, changes: Changes) -> None: ...


class Entries(_Changing):
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

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.stores, self.shard_count = {}, shard_count

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        self.stores.setdefault(store, Shards(self.shard_count)).load(slices)

    def mark(self) -> CompositeCursor:
        """Begin a cursor over the entries of all stores."""
        return CompositeCursor({name: each.mark() for name, each in sorted(self.stores.items())})

    def _write(self, store: str, changes: Changes) -> None:
        self.stores.setdefault(store, Shards(self.shard_count)).apply(changes)


class PlainEntries(_Changing):
    """The entries of a state in one dict per store, for a state that only its last digest proves: a change is not
    hashed (a third of the CPU time of `Entries`, measured).

    Attributes:
        is_map: False for a state of the app's own, whose values may be any bytes. It has a single shard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[str, dict[bytes, bytes]] = {}
        self.is_map = True

    def digest(self) -> Digest:
        """Return the digest of all stores together; hashes every entry."""
        return digest_of_stores({n: digest_of(each.items()) for n, each in self.stores.items()})

    def clear(self, shard_count: int = SHARD_COUNT) -> None:
        self.stores, self.is_map = {}, shard_count > 1

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        entries = self.stores.setdefault(store, {})
        for part in slices:
            entries.update(part.entries)

    def _write(self, store: str, changes: Changes) -> None:
        entries: dict[bytes, Any] = self.stores.setdefault(store, {})
        entries.update(changes)
        if None in changes.values():
            for key in [key for key, value in changes.items() if value is None]:
                del entries[key]


def is_there(pointer: Pointer, moment: Moment) -> bool:
    """Say whether the logs still hold all that a restore from this snapshot needs."""
    starts = LogStarts(moment.log_start, moment.snapshots_start)
    return trimmed(pointer, starts) is None and pointer.manifest_offset < moment.snapshots_end


def manifest_of(logs: Logs, pointer: Pointer) -> Manifest:
    """Return the manifest of a snapshot that is there.

    Raises:
        DamagedError: it is not the one that `pointer` names.
    """
    seals, at = logs.seals, pointer.manifest_offset
    for records in logs.snapshots(at, at + 1):
        try:
            return named_manifest(records[0], place_of(records[0], seals), pointer)
        except SealRefused as error:
            if seals is not None and not seals.keys:
                raise
            raise DamagedError(error.message, offset=at) from error
    raise DamagedError(
        f"offset {at} holds no manifest of snapshot {pointer.snapshot_id} as its pointer names it", offset=at
    )


def load(logs: Logs, manifest: Manifest, sink: Sink, *, verify_sums: bool = True) -> None:
    """Make `sink` exactly the snapshot's state. Every entry is hashed: false sums would make a wrong state look right.

    Args:
        verify_sums: False where the entries are hashed later.

    Raises:
        DamagedError: one is missing or not what was written, or together they are not what the manifest says.
    """
    topic = names.snapshots_topic(manifest.origin.app_id)
    steps = loading(topic, manifest, sink, verify_sums=verify_sums)
    try:
        Waiting(lambda source: logs.snapshots(source.start_offset, source.end_offset)).all_of(steps)
    except SnapshotMissing as error:
        raise DamagedError(error.message) from error


def entries_of(logs: Logs, manifest: Manifest) -> Entries:
    """Return what is in all chunks. Raises as `load`."""
    entries = Entries()
    load(logs, manifest, entries)
    return entries
