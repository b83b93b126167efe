"""The state of a partition as entries: from the chunks of a snapshot, and by recorded changes. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.chunks import read_chunk, stated_digest
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import (
    ChangesRecord,
    ChangesRef,
    Chunk,
    LogEntry,
    Manifest,
    Pointer,
)
from snapreplay.snapshots.plan import LogStarts, trimmed
from snapreplay.snapshots.proof.moment import Logs, Moment
from snapreplay.state.digest import EMPTY, Digest, digest_of, digest_of_stores, recorded_digests
from snapreplay.state.shards import SHARD_COUNT, Shards


def wrong_entries(manifest: Manifest, found: Digest) -> str:
    """What is wrong with a snapshot whose entries have another digest."""
    return (
        f"the entries of snapshot {manifest.snapshot_id} have digest {found}, but its manifest says"
        f" {manifest.entries_digest}"
    )


Changes = Mapping[bytes, bytes | None]
"""Of one store; a value that is None deletes its key."""


class _Changing(ABC):
    """Entries by store, and what changes records do to them."""

    def apply(
        self,
        ref: ChangesRef,
        values: Sequence[bytes],
        decoded: Sequence[LogEntry | None] | None = None,
    ) -> int:
        """One batch, by its changes records (see `check_changes`). Returns how many entries they have.

        Raises:
            DamagedError, UnknownFormatError: they are not what the increment names.
        """
        return sum(self._apply(stores) for stores in check_changes(ref, values, decoded))

    def apply_unread(self, values: Sequence[bytes]) -> None:
        """A batch whose increment cannot be read: the digest of a later batch shows whether they were its changes.

        Raises:
            DamagedError, UnknownFormatError: one of them cannot be read either.
        """
        for value in values:
            record = decode(value)
            if isinstance(record, ChangesRecord):
                self._apply(record.stores)

    def _apply(self, stores: Mapping[str, Changes]) -> int:
        for store, changes in stores.items():
            self._write(store, changes)
        return sum(map(len, stores.values()))

    @abstractmethod
    def clear(self, stores: Iterable[str]) -> None:
        """What a batch does with the stores that its increment names as cleared, before its changes."""

    @abstractmethod
    def _write(self, store: str, changes: Changes) -> None: ...


class Entries(_Changing):
    """In shards. The digest is that of the moment, so each batch can be compared with what it recorded."""

    def __init__(self) -> None:
        self._stores: dict[str, Shards] = {}
        self._shard_count = SHARD_COUNT

    @property
    def digest(self) -> Digest:
        """Of all stores together."""
        return digest_of_stores({name: each.digest for name, each in self._stores.items()})

    @property
    def store_digests(self) -> dict[str, Digest]:
        """As an increment records them."""
        return recorded_digests({name: each.digest for name, each in self._stores.items()})

    def load(self, chunk: Chunk, shard_count: int) -> None:
        """A part of a snapshot."""
        self._shard_count = shard_count
        self._stores.setdefault(chunk.store, Shards(shard_count)).load(chunk.slices)

    def clear(self, stores: Iterable[str]) -> None:
        for store in stores:
            self._stores.pop(store, None)

    def stores(self) -> Iterator[tuple[str, Shards]]:
        """By name."""
        return iter(sorted(self._stores.items()))

    def _write(self, store: str, changes: Changes) -> None:
        self._stores.setdefault(store, Shards(self._shard_count)).apply(changes)


class PlainEntries(_Changing):
    """In one dict per store, for a state that only its last digest proves: a change is not hashed (a third of the CPU
    time of `Entries`, measured).

    Attributes:
        is_map: False for a state of the app's own, whose values may be any bytes. It has a single shard.
    """

    def __init__(self) -> None:
        self.stores: dict[str, dict[bytes, bytes]] = {}
        self.is_map = True

    def digest(self) -> Digest:
        """Of all stores together; hashes every entry."""
        return digest_of_stores({n: digest_of(each.items()) for n, each in self.stores.items()})

    def load(self, chunk: Chunk) -> None:
        """A part of a snapshot."""
        entries = self.stores.setdefault(chunk.store, {})
        for part in chunk.slices:
            entries.update(part.entries)

    def clear(self, stores: Iterable[str]) -> None:
        for store in stores:
            self.stores.pop(store, None)

    def _write(self, store: str, changes: Changes) -> None:
        entries: dict[bytes, Any] = self.stores.setdefault(store, {})
        entries.update(changes)
        if None in changes.values():
            for key in [key for key, value in changes.items() if value is None]:
                del entries[key]


def is_there(pointer: Pointer, moment: Moment) -> bool:
    """Whether the logs still hold all that a restore from this snapshot needs."""
    starts = LogStarts(moment.log_start, moment.snapshots_start)
    return trimmed(pointer, starts) is None and pointer.manifest_offset < moment.snapshots_end


def manifest_of(logs: Logs, pointer: Pointer) -> Manifest:
    """Of a snapshot that is there.

    Raises:
        DamagedError: it is not the one that `pointer` names.
    """
    at = pointer.manifest_offset
    manifest: object = None
    for records in logs.snapshots(at, at + 1):
        manifest = decode(records[0].value or b"")
    if not isinstance(manifest, Manifest) or not _is_named(manifest, pointer):
        raise DamagedError(
            f"offset {at} holds no manifest of snapshot {pointer.snapshot_id} as its pointer names it",
            offset=at,
        )
    return manifest


def _is_named(manifest: Manifest, pointer: Pointer) -> bool:
    first = min((ref.offset for ref in manifest.chunks), default=pointer.manifest_offset)
    told = (manifest.snapshot_id, manifest.batch, manifest.increment_offset, manifest.digest, first)
    return told == (
        pointer.snapshot_id,
        pointer.batch,
        pointer.increment_offset,
        pointer.digest,
        pointer.first_chunk_offset,
    )


def chunks_of(
    logs: Logs, manifest_offset: int, manifest: Manifest, *, verify_sums: bool = True
) -> Iterator[Chunk]:
    """All chunks, by offset. Every entry is hashed: false sums would make a wrong state look right.

    Args:
        verify_sums: False where the entries are hashed later.

    Raises:
        DamagedError: one is missing or not what was written, or together they are not what the manifest says.
    """
    refs = {ref.offset: ref for ref in manifest.chunks}
    total = EMPTY
    for records in logs.snapshots(min(refs, default=manifest_offset), manifest_offset):
        for record in records:
            ref = refs.pop(record.offset, None)
            if ref is None:
                continue
            chunk = read_chunk(
                record.value or b"", ref, manifest.snapshot_id, verify_sums=verify_sums
            )
            total = total.plus(stated_digest(chunk).in_store(chunk.store))
            yield chunk
    if refs:
        raise DamagedError(f"snapshot {manifest.snapshot_id} lacks {len(refs)} of its chunks")
    if total != manifest.entries_digest:
        raise DamagedError(wrong_entries(manifest, total))


def entries_of(logs: Logs, manifest_offset: int, manifest: Manifest) -> Entries:
    """What is in all chunks. Raises as `chunks_of`."""
    entries = Entries()
    for chunk in chunks_of(logs, manifest_offset, manifest):
        entries.load(chunk, manifest.shard_count)
    return entries
