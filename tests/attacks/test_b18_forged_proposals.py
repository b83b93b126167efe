"""Attack B18: a job, or somebody who can write to the snapshots topic, proposes a snapshot that is not the state of a
batch of this log. One adopted, and the next recovery has a wrong state that nothing finds."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from snapreplay.service.control.counters import PROPOSALS
from snapreplay.service.core.adoption import NOT_FINAL, Reason
from snapreplay.snapshots.format.envelope import RecordKind, decode, encode, enveloped
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Claim
from snapreplay.state.digest import Digest
from tests.support.proposals import SHARDS, Job, answer, asked, counted, propose, slice_of
from tests.support.tampering import flip, of_version


def flipped(parts, *, consistent):
    first = parts[0][0]
    key = next(iter(first.entries))
    value = first.entries[key]
    entries = {**first.entries, key: value[:-1] + bytes([value[-1] ^ 1])}
    parts[0][0] = slice_of(first.index, entries) if consistent else msgspec.structs.replace(first, entries=entries)


def misplaced(parts):
    """A key in the next shard; no restored map would find it there."""
    first = parts[0][0]
    key, *rest = first.entries
    assert rest
    value = first.entries.pop(key)
    parts[0][0] = slice_of(first.index, first.entries)
    parts.append([slice_of((first.index + 1) % SHARDS, {key: value})])


def beyond_the_last_shard(parts):
    parts[0][0] = msgspec.structs.replace(parts[0][0], index=SHARDS)


def said_twice(refs):
    return [refs[0], msgspec.structs.replace(refs[0], sequence=1), *refs[2:]]


OTHER = Digest(20, 1, 2)


def ahead(job):
    """Propose as a job with a defect does: a later batch, and the last increment's offset."""
    offset, increment = job.increments[-1]
    ahead_of_it = msgspec.structs.replace(increment, batch=increment.batch + 5)
    return propose(ahead_of_it, offset, {}, job.append)


def last(job):
    return job.increments[-1][1]


def origin(job, **changed):
    return msgspec.structs.replace(last(job).origin, **changed)


def genesis(job, **changed):
    return msgspec.structs.replace(last(job).genesis, **changed)


def of_another(job, refs):
    found = job.chunks[0]
    value = found.value
    return [ChunkRef(found.offset, 0, len(value), zlib.crc32(value)), *refs[1:]]


def changed_all(refs, *, sequence=0, offset=0):
    return [msgspec.structs.replace(ref, sequence=ref.sequence + sequence, offset=ref.offset + offset) for ref in refs]


def trimmed(job):
    offset = job.propose()
    job.bench.trim(job.bench.snapshots, offset)
    return offset


def gone(job):
    offset = job.propose()
    job.bench.log(job.bench.snapshots).records[offset - 1] = None
    return offset


def damaged_chunk(job):
    offset = job.propose()
    log = job.bench.log(job.bench.snapshots)
    record = log.records[offset - 1]
    log.records[offset - 1] = msgspec.structs.replace(record, value=flip(record.value))
    return offset


def padded(manifest):
    """Encode a manifest with an unknown field, of a million bytes."""
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    return msgspec.msgpack.encode({**fields, "padding": b"x" * 1_000_000})


def with_a_ghost(job, *slices):
    """One chunk more, of a store that the app does not have, and without entries: no sum shows it."""
    snapshot_id = "ab" * 16

    def one_more(refs):
        value = encode(Chunk(snapshot_id, len(refs), "ghost", list(slices)))
        return [*refs, ChunkRef(job.append(value), len(refs), len(value), zlib.crc32(value))]

    return job.propose(snapshot_id=snapshot_id, refs=one_more)


def proposing(**given):
    return lambda job: job.propose(**given)


Made = Callable[[Job], int]
FORGED: dict[str, tuple[Reason, Made]] = {
    "a changed value, its sums with it": (
        Reason.ENTRIES_DIFFER,
        proposing(forge=lambda parts: flipped(parts, consistent=True)),
    ),
    "a changed value": (Reason.CHUNK_DAMAGED, proposing(forge=lambda parts: flipped(parts, consistent=False))),
    "a chunk left out": (Reason.ENTRIES_DIFFER, proposing(refs=lambda refs: refs[:-1])),
    "no chunks at all": (Reason.ENTRIES_DIFFER, proposing(refs=lambda _: [])),
    "a chunk named twice": (Reason.INCONSISTENT, proposing(refs=said_twice)),
    "a chunk written twice": (Reason.ENTRIES_DIFFER, proposing(forge=lambda parts: parts.append(parts[0]))),
    "a chunk of another snapshot": (
        Reason.CHUNK_DAMAGED,
        lambda job: job.propose(snapshot_id="other", refs=lambda refs: of_another(job, refs)),
    ),
    "chunks in another order": (Reason.INCONSISTENT, proposing(refs=lambda refs: refs[::-1])),
    "chunks numbered from 1": (Reason.INCONSISTENT, proposing(refs=lambda refs: changed_all(refs, sequence=1))),
    "chunks behind the manifest": (Reason.INCONSISTENT, proposing(refs=lambda refs: changed_all(refs, offset=100))),
    "chunks at offsets below 0": (Reason.CHUNK_MISSING, proposing(refs=lambda refs: changed_all(refs, offset=-100))),
    "a key in another shard": (Reason.CHUNK_DAMAGED, proposing(forge=misplaced)),
    "a shard that is not there": (Reason.CHUNK_DAMAGED, proposing(forge=beyond_the_last_shard)),
    "no shards": (Reason.INCONSISTENT, proposing(shard_count=0)),
    "three shards": (Reason.INCONSISTENT, proposing(shard_count=3)),
    "too many shards": (Reason.INCONSISTENT, proposing(shard_count=2**40)),
    "another number of entries": (Reason.INCONSISTENT, proposing(entry_count=7)),
    "a batch ahead of the log": (Reason.AHEAD_OF_LOG, ahead),
    "an increment ahead of the log": (Reason.AHEAD_OF_LOG, proposing(at=10_000)),
    "another app": (Reason.OTHER_APP, lambda job: job.propose(origin=origin(job, app_id="other"))),
    "another schema": (Reason.OTHER_SCHEMA, lambda job: job.propose(origin=origin(job, schema_version=9))),
    "another version of the code": (
        Reason.INCREMENT_DIFFERS,
        lambda job: job.propose(origin=origin(job, app_version="9")),
    ),
    "another cluster": (Reason.OTHER_GENESIS, lambda job: job.propose(genesis=genesis(job, cluster_id="other"))),
    "another number of partitions": (
        Reason.OTHER_GENESIS,
        lambda job: job.propose(genesis=genesis(job, partition_count=7)),
    ),
    "another topic of our name": (
        Reason.OTHER_TOPIC,
        lambda job: job.propose(topic_ids={**last(job).topic_ids, job.bench.snapshots: "other"}),
    ),
    "no topic ids": (Reason.OTHER_TOPIC, proposing(topic_ids={})),
    "another digest": (Reason.INCREMENT_DIFFERS, proposing(digest=OTHER, entries_digest=OTHER)),
    "two digests": (Reason.INCONSISTENT, proposing(entries_digest=OTHER)),
    "no digest": (Reason.UNREADABLE, proposing(digest=None)),
    "other positions": (Reason.INCREMENT_DIFFERS, lambda job: job.propose(positions={job.bench.input: 3})),
    "another stream time": (Reason.INCREMENT_DIFFERS, proposing(stream_time_ms=3)),
    "another owner": (Reason.INCREMENT_DIFFERS, proposing(owner_epoch=3)),
    "the offset of a claim": (Reason.INCREMENT_DIFFERS, lambda job: job.propose(at=job.all_of(Claim)[-1][0])),
    "the offset of another increment": (Reason.INCREMENT_DIFFERS, lambda job: job.propose(at=job.increments[-2][0])),
    "the offset of a marker": (Reason.INCREMENT_DIFFERS, lambda job: job.propose(at=job.all_of(Claim)[-1][0] + 1)),
    "trimmed chunks": (Reason.CHUNK_MISSING, trimmed),
    "a chunk that is gone": (Reason.CHUNK_MISSING, gone),
    "a damaged chunk": (Reason.CHUNK_DAMAGED, damaged_chunk),
    "a damaged manifest": (Reason.UNREADABLE, proposing(encoded=lambda manifest: flip(encode(manifest)))),
    "half a manifest": (Reason.UNREADABLE, proposing(encoded=lambda manifest: encode(manifest)[:-20])),
    "a newer format": (Reason.UNKNOWN_FORMAT, proposing(encoded=lambda manifest: of_version(2)(encode(manifest)))),
    "a chunk": (Reason.NOT_A_MANIFEST, lambda job: job.chunks[0].offset),
    "a foreign record": (Reason.UNREADABLE, lambda job: job.append(b"hello")),
    "an empty record": (Reason.UNREADABLE, lambda job: job.append(b"")),
    "beyond the end": (Reason.NOT_THERE, lambda job: job.bench.log(job.bench.snapshots).end),
    "a huge offset": (Reason.NOT_THERE, lambda _: 2**63 - 1),
    "an empty chunk of an unknown store": (Reason.CHUNK_DAMAGED, with_a_ghost),
    "an empty slice of an unknown store": (Reason.CHUNK_DAMAGED, lambda job: with_a_ghost(job, slice_of(0, {}))),
    "digests of unknown stores": (Reason.INCREMENT_DIFFERS, proposing(store_digests={"ghost": OTHER})),
    "an id of 880,000 characters": (Reason.OUT_OF_BOUNDS, proposing(snapshot_id="a" * 880_000)),
    "no id": (Reason.OUT_OF_BOUNDS, proposing(snapshot_id="")),
    "an id of two lines": (Reason.OUT_OF_BOUNDS, proposing(snapshot_id="a\nb")),
    "the id of a snapshot that there is": (
        Reason.OUT_OF_BOUNDS,
        lambda job: job.propose(snapshot_id=last(job).pointers[0].snapshot_id),
    ),
    "the end of time": (Reason.OUT_OF_BOUNDS, proposing(created_at_ms=2**62)),
    "a time before its batch": (Reason.OUT_OF_BOUNDS, proposing(created_at_ms=0)),
    "a proposer of two lines": (Reason.OUT_OF_BOUNDS, proposing(proposed_by="compact\nERROR forged")),
    "a proposer without end": (Reason.OUT_OF_BOUNDS, proposing(proposed_by="a" * 100_000)),
    "a manifest that no owner would write": (
        Reason.OUT_OF_BOUNDS,
        proposing(encoded=lambda manifest: enveloped(RecordKind.MANIFEST, padded(manifest))),
    ),
    "a chunk that no owner would write": (
        Reason.OUT_OF_BOUNDS,
        proposing(refs=lambda refs: [msgspec.structs.replace(refs[0], size_bytes=2**40), *refs[1:]]),
    ),
    "without its maker": (Reason.NOT_A_PROPOSAL, proposing(proposed_by=None)),
}


@pytest.mark.parametrize("name", FORGED)
async def test_nothing_forged_is_adopted(bench, name):
    """Named with its reason, counted, remembered; and the partition continues, now and after the next recovery."""
    reason, make = FORGED[name]
    PROPOSALS.clear()
    async with bench.live(records=20) as one:
        await one.snapshot()
        await one.feed(20)
        offset = make(Job(bench))
        state, snapshot_id, detail = await answer(asked(one, offset))
        assert (state, snapshot_id) == ("failed", None)
        assert detail.startswith(f"{reason}: "), detail
        assert len(detail) < 1000
        assert detail.isprintable()
        remembered = [(each.manifest_offset, each.reason) for each in one.status.rejected_proposals]
        assert remembered == ([] if reason in NOT_FINAL else [(offset, reason)])
        assert counted(bench, reason) == len(remembered)
        assert await answer(asked(one, offset)) == (state, snapshot_id, detail)
        await asyncio.sleep(120)  # virtual: the log is looked at once a minute, and what is remembered not judged again
        assert counted(bench, reason) == len(remembered)
        await one.feed(20)
        assert one.status.phase == "live"
        await bench.assert_exactly_once(one)
    await bench.restored()
    assert offset not in {each.manifest_offset for it in bench.batches() for each in it.pointers}


def of_a_ghost(bench):
    """The last chunk says that it is of a store that the app does not have; its manifest agrees."""
    changed = []

    def other_store(value):
        changed.append(encode(msgspec.structs.replace(decode(value), store="ghost")))
        return changed[0]

    bench.tamper(bench.snapshots, RecordKind.CHUNK, other_store)
    value = changed[0]

    def other_ref(manifest):
        ref = manifest.chunks[-1]
        agreeing = ChunkRef(ref.offset, ref.sequence, len(value), zlib.crc32(value))
        return msgspec.structs.replace(manifest, chunks=[*manifest.chunks[:-1], agreeing])

    bench.tamper(bench.snapshots, RecordKind.MANIFEST, lambda old: encode(other_ref(decode(old))))


def of_another_schema(bench):
    def changed(value):
        manifest: Any = decode(value)
        other = msgspec.structs.replace(manifest.origin, schema_version=9)
        return encode(msgspec.structs.replace(manifest, origin=other))

    bench.tamper(bench.snapshots, RecordKind.MANIFEST, changed)


def of_a_newer_format(bench):
    bench.tamper(bench.snapshots, RecordKind.MANIFEST, of_version(2))


@pytest.mark.parametrize("made", [of_a_ghost, of_another_schema, of_a_newer_format])
async def test_a_snapshot_that_this_code_cannot_use_leads_to_the_older_one(bench, made):
    """An older version of the owner has adopted it: the partition is LIVE by the snapshot before it, and says why."""
    then = await bench.past()
    made(bench)
    restore = await bench.restored()
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == (then.first, then.second)


async def test_without_an_older_one_the_first_reason_counts(bench):
    """FAILED as if it had been the only snapshot: the hint is that of the schema."""
    await bench.past()
    of_another_schema(bench)
    bench.tamper(bench.snapshots, RecordKind.MANIFEST, flip, 0)
    bench.trim(bench.increments, 1)
    status = await bench.failure()
    assert status.error.kind == "SchemaDiffers", status.error
    assert "schema_version 9" in status.error.message
