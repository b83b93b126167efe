"""Every check finds the fault made for it, where it was made, and nothing else.

One log, one fault per partition, one audit over all of them: partitions do not know each other.
"""

import struct
from dataclasses import dataclass
from zlib import crc32

import msgspec
import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import ChangesRecord, Chunk, Claim, Increment
from snapreplay.snapshots.jobs.audit import audit
from snapreplay.snapshots.jobs.report import RecordedDecision
from snapreplay.state.digest import Digest
from tests.support.audited_log import (
    SILENCE,
    Fault,
    Story,
    batch_of,
    changed,
    claim_of,
    flipped,
    increment_of,
    snapshot_of,
)

pytestmark = pytest.mark.timeout(300)  # the first one pays for Spark's start and for what all share


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


def sealed(value: bytes, version: int, body: bytes | None = None) -> bytes:
    """The record with another version or body, its checksum right."""
    described, body = bytes([version]) + value[5:8], value[12:] if body is None else body
    return value[:4] + described + struct.pack(">I", crc32(described + body)) + body


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
    """The first chunk with one value changed: a snapshot that is not the state it says."""
    chunk = decode(values[0])
    assert isinstance(chunk, Chunk)
    entries = chunk.slices[0].entries
    entries[next(iter(entries))] = b"other"
    return [encode(chunk, compress=True), *values[1:]]


def chunk_elsewhere(manifest):
    wrong = msgspec.structs.replace(manifest.chunks[1], offset=10_000)
    return msgspec.structs.replace(
        manifest, chunks=[manifest.chunks[0], wrong, *manifest.chunks[2:]]
    )


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
        Fault("manifest4", manifest=other_crc), "chunks", "snaps", "snapshot4", 0, "written were"
    ),
    "newer_version": Case(
        Fault("batch5", values=lambda v: [sealed(STRANGE, 2), *v]),
        "format", "log", "batch5", 0, "a format version that this build does not know",
    ),
    "wrong_body": Case(
        Fault("batch5", values=lambda v: [sealed(STRANGE, 1, b"\x80"), *v]),
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
    "epoch_of_nobody": Case(
        Fault("batch3", before=no_claim), "epochs", "log", "batch3", -1, "no claim before it"
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
    "changes_of_nobody": Case(
        Fault("batch5", values=lambda v: [*v, encode_changes()]),
        "changes", "log", "batch5", -1, "without an increment",
    ),
    "dangling_pointer": Case(
        Fault("batch3", before=point_to_a_chunk),
        "pointers", "log", "batch3", -1, "where no manifest is",
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
    "wrong_digest": Case(
        Fault("snapshot4", values=another_value), "digest", "snaps", "manifest4", 0, "have digest"
    ),
}  # fmt: skip

NUMBERS = {name: number for number, name in enumerate(CASES)}
TRIMMED, TRIMMED_MORE, TRIMMED_TOO_FAR, UNTOUCHED, ORPHANS, ACCEPTED, CUT, CUT_UNHEALED, ANEW = (
    range(len(CASES), len(CASES) + 9)
)
DECISION = {"finding": "input-gap-1", "decided": "goes on", "reason": "outage", "by": "ada@here"}
OWN_DECISION = {"finding": "increments-replaced-1", "decided": "d", "reason": "r", "by": "process"}


@pytest.fixture(scope="module")
def story(broker, unique):
    """The log with all faults in it, some of its partitions trimmed, one with orphans and strangers."""
    story = Story(broker.bootstrap_servers, unique("faulty"), len(CASES) + 9)
    story.tell({number: CASES[name].fault for name, number in NUMBERS.items()})
    stray = encode(Chunk("stray", 0, "default", []))
    story.append("snapshot", {ORPHANS: [stray, b"a stranger's record"]})
    story.append("batch", {ORPHANS: [b"another stranger's"]})
    begin_anew(story, ACCEPTED, DECISION, skipped=10)
    for number in (CUT, CUT_UNHEALED):
        write_behind_a_cut(story, number)
    begin_anew(story, CUT, OWN_DECISION)
    begin_anew(story, CUT_UNHEALED, DECISION)
    begin_anew(story, ANEW, OWN_DECISION)
    for number, kept in ((TRIMMED, 1), (TRIMMED_MORE, 0), (TRIMMED_TOO_FAR, 0)):
        pointer = story.partitions[number].pointers[kept]
        too_far = number == TRIMMED_TOO_FAR
        story.trim(number, pointer.increment_offset, pointer.first_chunk_offset + too_far)
    return story


def begin_anew(story, number, decision, skipped=0):
    """A decision as `snapreplay accept` and owners write it: claim, snapshot, and an increment that begins the chain
    anew, with positions that may be others than those of the batch before; then a batch as ever."""
    partition = story.partitions[number]
    (epoch,) = story.append("claim", {number: [claim_of(partition)]})[number]
    partition.epoch = partition.last_offset = epoch
    partition.pointers = []
    chunks = snapshot_of(partition, f"snapshot9-{number}")
    offsets = story.append("snapshot9", {number: chunks})[number]
    story._write_manifest("snapshot9", number, chunks, offsets)
    partition.batch += 1
    payments, refunds = partition.positions["payments"], partition.positions["refunds"]
    partition.positions = {"payments": payments + skipped, "refunds": refunds}
    decided = increment_of(partition, ranges=False, decision=decision)
    (partition.last_offset,) = story.append("batch6", {number: [decided]})[number]
    partition.written["decision"] = [partition.last_offset]
    partition.batch += 1
    story.append("batch7", {number: batch_of(partition)})


def write_behind_a_cut(story, number):
    """Two batches of an owner that does not know that the log has lost its last 1,000 offsets and three batches."""
    partition = story.partitions[number]
    partition.batch += 3
    partition.epoch += 1000
    partition.last_offset += 1000
    partition.positions = {"payments": partition.positions["payments"] + 5, "refunds": 100}
    for stage in ("behind_a_cut", "behind_it"):
        partition.batch += 1
        (*_, partition.last_offset) = story.append("batch", {number: batch_of(partition)})[number]
        partition.written[stage] = [partition.last_offset]


@pytest.fixture(scope="module")
def report(spark, broker, story):
    """One audit for all of them."""
    return audit(broker.bootstrap_servers, story.app_id)


def found_in(report, number):
    """The findings of one partition."""
    return [finding for finding in report.findings if finding.partition == number]


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_found_where_it_is_and_nothing_else(report, story, name) -> None:
    """By the check made for it, at topic, partition and offset, saying what is wrong; no other check is set off."""
    case, number = CASES[name], NUMBERS[name]
    written = story.partitions[number].written.get(case.stage)
    offset = written[case.index] if written else case.index
    topic = story.log if case.topic == "log" else story.snaps
    found = found_in(report, number)
    named = [f for f in found if (f.check, f.topic, f.offset) == (case.check, topic, offset)]
    assert named, found
    assert any(case.says in finding.detail for finding in named), named
    assert {f.check for f in found} == {case.check} | case.also


def test_what_the_owner_trimmed_is_no_finding(report) -> None:
    """Logs that begin at the retention floor, of two snapshots or of one, are whole; so is a log that nobody touched
    among faulty ones."""
    for number in (UNTOUCHED, TRIMMED, TRIMMED_MORE):
        assert found_in(report, number) == []
    assert report.notes["trimmed_pointers"] >= 2
    assert report.exit_code == 1


def test_a_newest_snapshot_that_was_trimmed_is_a_finding(report, story) -> None:
    """One chunk too far, and the state cannot be restored from it."""
    (finding,) = found_in(report, TRIMMED_TOO_FAR)
    assert (finding.check, finding.topic) == ("retention", story.log)
    assert finding.offset == story.partitions[TRIMMED_TOO_FAR].written["batch5"][-1]


def test_orphans_and_strangers_are_only_counted(report) -> None:
    """Nobody points to them: worth knowing, no fault."""
    assert found_in(report, ORPHANS) == []
    assert report.notes["foreign_records"] == 2
    assert report.notes["unlisted_chunks"] >= 1
    assert report.notes["unpointed_manifests"] >= 1


def test_decisions_are_no_findings_and_are_told(report, story) -> None:
    """The chain begins anew where an operator or its owner said so; whoever reads a clean audit knows of it."""
    told = {decision.partition: decision for decision in report.decisions}
    for number, decision in ((ACCEPTED, DECISION), (CUT, OWN_DECISION), (ANEW, OWN_DECISION)):
        assert found_in(report, number) == []
        (offset,) = story.partitions[number].written["decision"]
        assert told[number] == RecordedDecision(number, offset, *decision.values())
        assert told[number].by_owner is (decision is OWN_DECISION)
    assert report.notes["orphaned_increments"] == 2


def test_what_lies_behind_a_cut_is_excused_by_its_owner_only(report, story) -> None:
    """Whoever else begins the chain anew does not say that the log was cut."""
    (offset,) = story.partitions[CUT_UNHEALED].written["behind_a_cut"]
    found = [f.check for f in found_in(report, CUT_UNHEALED) if f.offset == offset]
    assert {"chain", "epochs", "ranges"} <= set(found)
