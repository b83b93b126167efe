"""The proposals of a job: a snapshot of a batch that the log has, made from the log alone, and written by any
means."""

import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from snapreplay.service.control.counters import PROPOSALS
from snapreplay.snapshots.format.envelope import RecordKind, decode, encode, headers_of, kind_of
from snapreplay.snapshots.format.records import ChangesRecord, Chunk, ChunkRef, Increment, Manifest
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import DEFAULT_STORE, EMPTY, Digest, digest_of
from tests.support.entries import read_entry
from tests.support.in_memory import InMemory
from tests.support.stage import until

SHARDS = 8
CHUNKS = 2
JOB = "compact@test/1"

Append = Callable[[bytes, tuple[tuple[str, bytes], ...]], int]
"""Writes a value with headers into the snapshots topic; its offset."""
Forge = Callable[[list[list[ShardSlice]]], None]
"""Changes the slices of the chunks before they are written."""


def folded(values: Iterable[bytes], batch: int) -> dict[bytes, bytes]:
    """The entries after `batch`, from the values of the increments topic, from the genesis on."""
    entries: dict[bytes, bytes] = {}
    for value in values:
        record = decode(value) if kind_of(value) is RecordKind.CHANGES else None
        if not isinstance(record, ChangesRecord) or record.batch > batch:
            continue
        for key, new in record.stores[DEFAULT_STORE].items():
            if new is None:
                entries.pop(key, None)
            else:
                entries[key] = new
    return entries


def propose(
    increment: Increment,
    increment_offset: int,
    entries: Mapping[bytes, bytes],
    append: Append,
    *,
    forge: Forge = lambda _: None,
    refs: Callable[[list[ChunkRef]], list[ChunkRef]] = lambda refs: refs,
    encoded: Callable[[Manifest], bytes] = encode,
    stores: Mapping[str, Mapping[bytes, bytes]] | None = None,
    **changed: Any,
) -> int:
    """Write it, the manifest last; the manifest's offset.

    Args:
        forge: see `Forge`.
        refs: what the manifest says instead of the true references.
        encoded: how the manifest becomes a value.
        stores: entries by store, instead of `entries`.
        changed: fields of the manifest.
    """
    snapshot_id = changed.pop("snapshot_id", uuid.uuid4().hex)
    stores = stores or {DEFAULT_STORE: entries}
    parts = {store: sliced(inner) for store, inner in sorted(stores.items())}
    forge(next(iter(parts.values()), []))
    written: list[ChunkRef] = []
    for store, part in [(store, part) for store, these in parts.items() for part in these]:
        chunk = Chunk(snapshot_id, len(written), store, part)
        value = encode(chunk)
        offset = append(value, headers_of(chunk))
        written.append(ChunkRef(offset, len(written), len(value), zlib.crc32(value)))
    manifest = Manifest(
        origin=increment.origin,
        snapshot_id=snapshot_id,
        owner_epoch=increment.owner_epoch,
        batch=increment.batch,
        increment_offset=increment_offset,
        positions=increment.positions,
        chunks=refs(written),
        entry_count=(increment.digest or EMPTY).count,
        digest=increment.digest,
        entries_digest=increment.digest or EMPTY,
        stream_time_ms=increment.stream_time_ms,
        shard_count=SHARDS,
        created_at_ms=increment.written_at_ms,
        genesis=increment.genesis,
        topic_ids=increment.topic_ids,
        proposed_by=JOB,
        store_digests=increment.store_digests,
    )
    manifest = msgspec.structs.replace(manifest, **changed)
    return append(encoded(manifest), headers_of(manifest))


def sliced(entries: Mapping[bytes, bytes]) -> list[list[ShardSlice]]:
    """Whole shards in `CHUNKS` chunks."""
    shards: list[dict[bytes, bytes]] = [{} for _ in range(SHARDS)]
    for key, value in entries.items():
        shards[zlib.crc32(key) & (SHARDS - 1)][key] = value
    slices = [slice_of(index, shard) for index, shard in enumerate(shards) if shard]
    half = -(-len(slices) // CHUNKS) or 1
    return [slices[at : at + half] for at in range(0, len(slices), half)]


def slice_of(index: int, entries: Mapping[bytes, bytes]) -> ShardSlice:
    digest: Digest = digest_of(entries.items())
    return ShardSlice(index, digest.a, digest.b, dict(entries))


class Job:
    def __init__(self, bench: InMemory) -> None:
        self.bench = bench

    @property
    def increments(self) -> list[tuple[int, Increment]]:
        return self.all_of(Increment)

    def all_of(self, kind: type) -> list[tuple[int, Any]]:
        """Return the committed records of the increments topic."""
        records = self.bench.log(self.bench.increments).committed()
        found = [(each.offset, read_entry(each.value)) for each in records]
        return [each for each in found if isinstance(each[1], kind)]

    def append(self, value: bytes, headers: Any = ()) -> int:
        return self.bench.log(self.bench.snapshots).append(None, value, headers, 1000, None)

    def propose(self, number: int = -1, at: int | None = None, **forged: Any) -> int:
        """Propose the last increment, or another one by number, as if it were `at` this offset; return the
        manifest's offset."""
        offset, increment = self.increments[number]
        offset = offset if at is None else at
        records = self.bench.log(self.bench.increments).committed()
        entries = folded((each.value or b"" for each in records), increment.batch)
        return propose(increment, offset, entries, self.append, **forged)

    @property
    def chunks(self) -> list[Any]:
        records = self.bench.log(self.bench.snapshots).committed()
        return [each for each in records if kind_of(each.value or b"") is RecordKind.CHUNK]


def asked(one: Any, offset: int) -> list[Any]:
    """Name the proposal to its owner; what becomes of it."""
    told: list[Any] = []
    assert one.runner.request_adoption(offset, lambda *news: told.append(news))
    return told


async def answer(told: list[Any]) -> Any:
    """The end: state, snapshot id, detail."""
    await until(lambda: told, "the judgement", 100.0)
    return told[0]


def counted(bench: InMemory, result: str) -> float:
    """Return how many proposals ended so, of this app since the last `PROPOSALS.clear()`."""
    found = (each for family in PROPOSALS.collect() for each in family.samples if each.name.endswith("_total"))
    return sum(each.value for each in found if {bench.app.app_id, "0", result} <= set(each.labels.values()))
