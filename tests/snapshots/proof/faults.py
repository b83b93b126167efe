"""One fault for each check of an audit, in the story of one partition."""

from dataclasses import dataclass

import msgspec

from snapreplay.app.ranges import InputRange
from snapreplay.snapshots.format.changes import joined_crc32
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import ChangesRecord, Chunk, Claim, Increment
from snapreplay.state.digest import Digest
from tests.support.audited_log import SILENCE, Fault, changed, flipped
from tests.support.entries import rewrapped


def last(**fields):
    """The stage's last record (its increment) with other fields."""
    return lambda values: [*values[:-1], changed(values[-1], **fields)]


def ranged(change):
    """The batch's ranges after `change`."""

    def spoil(values):
        increment = decode(values[-1])
        assert isinstance(increment, Increment)
        return [*values[:-1], changed(values[-1], ranges=change(increment.ranges))]

    return spoil


def skip_a_batch(partition):
    partition.batch += 1


def point_to_a_chunk(partition):
    pointer = partition.pointers[0]
    wrong = msgspec.structs.replace(pointer, manifest_offset=pointer.first_chunk_offset)
    partition.pointers = [wrong]


def point_with(**fields):
    def before(partition):
        partition.pointers = [msgspec.structs.replace(partition.pointers[0], **fields)]

    return before


def another_value(values):
    """The first chunk with entries has one value changed: a snapshot that is not the state it says."""
    for number, value in enumerate(values):
        chunk = decode(value)
        assert isinstance(chunk, Chunk)
        for part in chunk.slices:
            if part.entries:
                part.entries[next(iter(part.entries))] = b"other"
                return [*values[:number], encode(chunk, compress=True), *values[number + 1 :]]
    raise AssertionError("the snapshot is empty")


def lying_sums(values):
    """The first chunk's first slice does not say what its entries add up to."""
    chunk = decode(values[0])
    assert isinstance(chunk, Chunk)
    first, *rest = chunk.slices
    return [
        encode(msgspec.structs.replace(chunk, slices=[msgspec.structs.replace(first, digest_a=1), *rest])),
        *values[1:],
    ]


def renamed(fields):
    """Every chunk says that it is another one; lengths and checksums are listed as they are."""
    return lambda values: [changed(value, **fields(decode(value))) for value in values]


def other_changes(values):
    """One value is another one, all checksums are right: what a wrong program would write."""
    changes, increment = decode(values[0]), decode(values[-1])
    assert isinstance(changes, ChangesRecord)
    assert isinstance(increment, Increment)
    assert increment.changes is not None
    entries = changes.stores["default"]
    entries[next(key for key, value in entries.items() if value is not None)] = b"other"
    told = [encode(changes), *values[1:-1]]
    ref = msgspec.structs.replace(increment.changes, crc32=joined_crc32(told))
    return [*told, changed(values[-1], changes=ref)]


def chunk_elsewhere(manifest):
    wrong = msgspec.structs.replace(manifest.chunks[1], offset=10_000)
    return msgspec.structs.replace(manifest, chunks=[manifest.chunks[0], wrong, *manifest.chunks[2:]])


def other_crc(manifest):
    wrong = msgspec.structs.replace(manifest.chunks[0], crc32=7)
    return msgspec.structs.replace(manifest, chunks=[wrong, *manifest.chunks[1:]])


def chunks_reversed(manifest):
    return msgspec.structs.replace(manifest, chunks=manifest.chunks[::-1])


def other_counts(manifest):
    return msgspec.structs.replace(manifest, entry_count=manifest.entry_count + 1)


STRANGE = encode(Claim("c", "someone", "cluster-1", "p", "i", "host", 1, 0))


def encode_changes() -> bytes:
    return encode(ChangesRecord(9, 0, {"default": {b"k": b"v"}}))


def old_epoch(partition):
    partition.epoch = partition.written["claim"][0]


def no_claim(partition):
    partition.epoch = partition.written["batch2"][-1]


def another_app(partition):
    partition.app_id = "someone-else"


def not_first(partition):
    partition.batch = 3


@dataclass(frozen=True)
class Case:
    """A fault, the check that must find it, and the record that must be named: topic, stage, index."""

    fault: Fault
    check: str
    topic: str
    stage: str
    index: int
    says: str
    also: frozenset[str] = frozenset()


CASES: dict[str, Case] = {
    "flipped_changes": Case(
        Fault("batch3", values=lambda v: [flipped(v[0]), *v[1:]]),
        "envelope", "log", "batch3", 0, "crc32", frozenset({"changes"}),
    ),
    "flipped_chunk": Case(
        Fault("snapshot4", values=lambda v: [v[0], flipped(v[1])]),
        "envelope", "snaps", "snapshot4", 1, "crc32",
    ),
    "another_chunk": Case(
        Fault("manifest4", manifest=other_crc), "chunks", "snaps", "snapshot4", 0, "its manifest says"
    ),
    "chunk_of_another_place": Case(
        Fault("snapshot4", values=renamed(lambda chunk: {"sequence": chunk.sequence + 7})),
        "chunks", "snaps", "snapshot4", 0, "is chunk 7 of snapshot snapshot4-",
    ),
    "chunk_of_another_snapshot": Case(
        Fault("snapshot4", values=renamed(lambda _: {"snapshot_id": "another"})),
        "chunks", "snaps", "snapshot4", 0, "is chunk 0 of snapshot another",
    ),
    "newer_version": Case(
        Fault("batch5", values=lambda v: [rewrapped(STRANGE, version=2), *v]),
        "format", "log", "batch5", 0, "a format version that this build does not know",
    ),
    "wrong_body": Case(
        Fault("batch5", values=lambda v: [rewrapped(STRANGE, b"\x80"), *v]),
        "format", "log", "batch5", 0, "missing required field",
    ),
    "no_genesis": Case(SILENCE, "genesis", "log", "", -1, "no increment"),
    "late_genesis": Case(
        Fault("genesis", before=not_first), "genesis", "log", "genesis", 0, "batch 3"
    ),
    "batch_gap": Case(
        Fault("batch3", before=skip_a_batch), "chain", "log", "batch3", -1, "batch 4 names"
    ),
    "fork": Case(
        Fault("batch3", values=last(previous_offset=0)), "chain", "log", "batch3", -1, "offset 0"
    ),
    "range_gap": Case(
        Fault("batch3", values=ranged(lambda r: [
            InputRange("payments", r[0].start_offset + 1, r[0].end_offset, 3), *r[1:]])),
        "ranges", "log", "batch3", -1, "covers payments from 13 to 16",
    ),
    "range_gap_inside": Case(
        Fault("batch3", values=ranged(lambda r: [
            *r[:2], InputRange("payments", r[2].start_offset + 1, r[2].end_offset, 2)])),
        "ranges", "log", "batch3", -1, "covers payments from 17 to 18",
    ),
    "position_moved": Case(
        Fault("batch5", values=last(positions={"payments": 19, "refunds": 10})),
        "ranges", "log", "batch5", -1, "ends payments at position 19",
    ),
    "records_lost": Case(
        Fault("batch3", values=last(record_count=9)), "ranges", "log", "batch3", -1, "applied 9"
    ),
    "old_epoch": Case(
        Fault("batch4", before=old_epoch), "epochs", "log", "batch4", -1, "after the claim at"
    ),
    "epoch_falls": Case(
        Fault("batch5", values=last(owner_epoch=2)), "epochs", "log", "batch5", -1, "after epoch"
    ),
    "epoch_without_an_owner": Case(
        Fault("batch3", before=no_claim), "epochs", "log", "batch3", -1, "is not the offset of a claim before it"
    ),
    "other_app": Case(
        Fault("claim2", before=another_app), "origin", "log", "claim2", 0, "someone-else"
    ),
    "missing_changes": Case(
        Fault("batch3", values=lambda v: v[1:]), "changes", "log", "batch3", -1, "before it are"
    ),
    "exchanged_changes": Case(
        Fault("batch3", values=lambda v: [v[1], v[0], *v[2:]]),
        "changes", "log", "batch3", -1, "crc32",
    ),
    "other_changes": Case(
        Fault("batch3", values=other_changes), "batch_digest", "log", "batch3", -1, "was recorded"
    ),
    "changes_without_an_owner": Case(
        Fault("batch5", values=lambda v: [*v, encode_changes()]),
        "changes", "log", "batch5", -1, "without an increment",
    ),
    "dangling_pointer": Case(
        Fault("batch3", before=point_to_a_chunk),
        "pointers", "log", "batch3", -1, "where there is no manifest",
    ),
    "pointer_to_another_batch": Case(
        Fault("batch3", before=point_with(batch=1)),
        "pointers", "log", "batch3", -1, "another batch",
    ),
    "pointer_with_another_digest": Case(
        Fault("batch3", before=point_with(digest=Digest(1, 2, 3))),
        "pointers", "log", "batch3", -1, "another batch, increment, digest",
    ),
    "missing_chunk": Case(
        Fault("manifest4", manifest=chunk_elsewhere), "chunks", "snaps", "", 10_000, "is missing"
    ),
    "chunk_order": Case(
        Fault("manifest4", manifest=chunks_reversed),
        "manifests", "snaps", "manifest4", 0, "in place 0",
    ),
    "manifest_counts": Case(
        Fault("manifest4", manifest=other_counts), "manifests", "snaps", "manifest4", 0, "entries"
    ),
    "lying_sums": Case(
        Fault("snapshot4", values=lying_sums), "digest", "snaps", "snapshot4", 0, "sums of the slice for shard 0"
    ),
    "wrong_digest": Case(
        Fault("snapshot4", values=another_value), "digest", "snaps", "manifest4", 0, "have digest"
    ),
}  # fmt: skip
