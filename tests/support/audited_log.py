"""Both topics of an app as a service would have left them, written with our format, and faults put into single
partitions of it.

Every partition has the same story, told in stages, all partitions side by side in one transaction per
stage.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from zlib import crc32

import msgspec

from snapreplay.app.ranges import Anchor, InputRange, SkippedRange
from snapreplay.snapshots.format.changes import split_changes
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Claim, Genesis, Manifest, Pointer
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import DEFAULT_STORE, Digest, digest_of, digest_of_stores
from tests.support.audited_topics import Topics
from tests.support.entries import ORIGIN, increment, manifest

STAGES = ("claim", "genesis", "batch1", "batch2", "snapshot2", "batch3", "claim2", "batch4",
          "snapshot4", "batch5")  # fmt: skip
SHARD_COUNT = 4
GENESIS = Genesis("cluster-1", 3, {"payments": 0, "refunds": 7})


@dataclass
class Partition:
    """The knowledge of a partition's owner, and the offsets of what it wrote, by stage."""

    app_id: str
    state: dict[bytes, bytes] = field(default_factory=dict)
    epoch: int = -1
    batch: int = 0
    last_offset: int = -1
    positions: dict[str, int] = field(default_factory=lambda: dict(GENESIS.start_offsets))
    pointers: list[Pointer] = field(default_factory=list)
    written: dict[str, list[int]] = field(default_factory=dict)


RETIRED = "old"
"""A store that batch 1 has entries in, and that batch 4 clears."""


def store_of(key: bytes) -> str:
    """Return the store of an entry of a state: batch 1 writes two to a store that is cleared later, the odd ones
    are in `more`."""
    batch, _, number = key[1:].partition(b"-")
    if batch == b"1" and int(number) > 5:
        return RETIRED
    return "more" if int(number) % 2 else DEFAULT_STORE


def digests_of(state: Mapping[bytes, bytes]) -> dict[str, Digest]:
    by_store: dict[str, dict[bytes, bytes]] = {}
    for key, value in state.items():
        by_store.setdefault(store_of(key), {})[key] = value
    return {name: digest_of(by_store[name].items()) for name in sorted(by_store)}


@dataclass(frozen=True)
class Fault:
    """A fault in one partition at one stage: in what the owner knows, in the records' values, or in the manifest."""

    stage: str
    before: Callable[[Partition], None] = lambda _: None
    values: Callable[[list[bytes]], list[bytes]] = lambda values: values
    manifest: Callable[[Manifest], Manifest] = lambda manifest: manifest


NO_FAULT = Fault("none")
SILENCE = Fault("silence")
"""The partition is never written to."""


class Story:
    """Writes the topics `<app_id>-increments` and `<app_id>-snapshots`."""

    def __init__(self, topics: Topics, app_id: str, partition_count: int) -> None:
        self.app_id = app_id
        self.topics = topics
        self.log, self.snaps = f"{app_id}-increments", f"{app_id}-snapshots"
        self.partitions = [Partition(app_id) for _ in range(partition_count)]
        self.faults: Mapping[int, Fault] = {}
        topics.create((self.log, self.snaps), partition_count)

    def tell(self, faults: Mapping[int, Fault], stages: Sequence[str] = STAGES) -> None:
        """These stages in order, with these faults by partition."""
        self.faults = faults
        aborted = {number: [b"aborted"] for number in range(len(self.partitions))}
        self.topics.abort(self.log, aborted)  # markers and aborted records take offsets everywhere
        told = [n for n in range(len(self.partitions)) if faults.get(n) is not SILENCE]
        for stage in stages:
            values = {number: self._values(stage, number) for number in told}
            offsets = self.append(stage, values)
            for number in told:
                self._remember(stage, number, values[number], offsets[number])

    def append(self, stage: str, values: Mapping[int, list[bytes]]) -> dict[int, list[int]]:
        """Write records: the log's in one transaction, the snapshots' outside. Returns their offsets."""
        if stage.startswith("snapshot"):
            return self.topics.append(self.snaps, values)
        return self.topics.commit(self.log, values)

    def trim(self, number: int, log_offset: int, snaps_offset: int) -> None:
        self.topics.trim(self.log, number, log_offset)
        self.topics.trim(self.snaps, number, snaps_offset)

    def _fault(self, stage: str, number: int) -> Fault:
        fault = self.faults.get(number, NO_FAULT)
        return fault if fault.stage == stage else NO_FAULT

    def _values(self, stage: str, number: int) -> list[bytes]:
        partition, fault = self.partitions[number], self._fault(stage, number)
        fault.before(partition)
        if stage.startswith("batch"):
            partition.batch += 1
        if stage.startswith("claim"):
            values = [claim_of(partition)]
        elif stage.startswith("snapshot"):
            values = snapshot_of(partition, f"{stage}-{number}")
        elif stage in {"genesis", "batch5"}:
            values = [increment_of(partition, ranges=False)]
        else:
            values = batch_of(partition)
        return fault.values(values)

    def _remember(self, stage: str, number: int, values: list[bytes], offsets: list[int]) -> None:
        partition = self.partitions[number]
        partition.written[stage] = offsets
        if stage.startswith("claim"):
            partition.epoch = offsets[0]
        elif stage.startswith("snapshot"):
            self.write_manifest(stage, number, values, offsets)
        else:
            partition.last_offset = offsets[-1]

    def write_manifest(self, stage: str, number: int, values: list[bytes], offsets: list[int]) -> None:
        """Now that the chunks' offsets are known; then the pointer that the next increment carries."""
        partition = self.partitions[number]
        stores = digests_of(partition.state)
        digest = digest_of_stores(stores)
        written = manifest(
            f"{stage}-{number}",
            [
                ChunkRef(offset, sequence, len(value), crc32(value))
                for sequence, (offset, value) in enumerate(zip(offsets, values, strict=True))
            ],
            batch=partition.batch,
            increment_offset=partition.last_offset,
            positions=partition.positions,
            entry_count=digest.count,
            digest=digest,
            entries_digest=digest,
            shard_count=SHARD_COUNT,
            store_digests=stores,
        )
        spoilt = self._fault(f"manifest{stage[-1]}", number).manifest(written)
        (offset,) = self.append("snapshot", {number: [encode(spoilt)]})[number]
        partition.written[f"manifest{stage[-1]}"] = [offset]
        pointer = Pointer(written.snapshot_id, offset, offsets[0], partition.batch, partition.last_offset, digest)
        partition.pointers = [pointer, *partition.pointers]


def claim_of(partition: Partition) -> bytes:
    return encode(Claim("c", partition.app_id, "cluster-1", "p", "i", "host", 1, 0))


def batch_of(partition: Partition) -> list[bytes]:
    """Two changes records and an increment over two inputs; one key is deleted again each time."""
    changes: dict[bytes, bytes | None] = {b"k%d-%d" % (partition.batch, n): os.urandom(150) for n in range(8)}
    cleared = []
    if partition.batch == 4:
        cleared = [RETIRED]
        for key in [key for key in partition.state if store_of(key) == RETIRED]:
            del partition.state[key]
    for key in list(partition.state)[:1]:
        changes[key] = None
    for key, value in changes.items():
        if value is None:
            del partition.state[key]
        else:
            partition.state[key] = value
    by_store: dict[str, dict[bytes, bytes | None]] = {DEFAULT_STORE: {}}
    for key, value in changes.items():
        by_store.setdefault(store_of(key), {})[key] = value
    values, ref = split_changes(partition.batch, by_store, 1000)
    assert len(values) > 1
    return [*values, increment_of(partition, ranges=True, changes=ref, cleared=cleared)]


def increment_of(partition: Partition, *, ranges: bool, **fields) -> bytes:
    """The commit record: a range of each input, the first twice; one record was skipped."""
    covered: list[InputRange] = []
    skipped: list[SkippedRange] = []
    if ranges:
        p, r = partition.positions["payments"], partition.positions["refunds"]
        covered = [
            InputRange("payments", p, p + 4, 3),
            InputRange("refunds", r, r + 1, 1),
            InputRange("payments", p + 4, p + 6, 2),
        ]
        skipped = [SkippedRange("payments", p + 1, p + 2)]
        partition.positions = {"payments": p + 6, "refunds": r + 1}
    return encode(
        increment(
            partition.batch,
            origin=msgspec.structs.replace(ORIGIN, app_id=partition.app_id),
            owner_epoch=partition.epoch,
            previous_offset=partition.last_offset,
            ranges=covered,
            skipped=skipped,
            positions=partition.positions,
            record_count=5 if ranges else 0,
            anchors={"refunds": Anchor(partition.positions["refunds"] - 1, 1, 2)} if ranges else {},
            pointers=partition.pointers,
            digest=digest_of_stores(digests_of(partition.state)),
            store_digests=digests_of(partition.state),
            genesis=GENESIS,
            **fields,
        )
    )


def snapshot_of(partition: Partition, snapshot_id: str) -> list[bytes]:
    values = []
    for sequence, (store, index) in enumerate(product((DEFAULT_STORE, "more", RETIRED), range(SHARD_COUNT))):
        part = {
            key: value
            for key, value in partition.state.items()
            if store_of(key) == store and crc32(key) & (SHARD_COUNT - 1) == index
        }
        digest = digest_of(part.items())
        slices = [ShardSlice(index, digest.a, digest.b, part)]
        values.append(encode(Chunk(snapshot_id, sequence, store, slices), compress=True))
    return values


def changed(value: bytes, **fields) -> bytes:
    """The same record with other fields, sealed again: what a wrong program would write."""
    return encode(msgspec.structs.replace(decode(value), **fields))


def flipped(value: bytes) -> bytes:
    """One bit of the body turned over: what a bad disk would do."""
    return value[:-1] + bytes([value[-1] ^ 1])
