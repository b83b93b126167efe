"""Tests of what an earlier audit has proved: how it is recorded, where the next one begins, and when it counts for
nothing."""

import json

import msgspec
import pytest

from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.proof.proven import NOTHING, Level, Proof, RecordedProof, from_metadata, to_metadata
from snapreplay.state.digest import EMPTY, digest_of
from tests.snapshots.proof.faults import another_value
from tests.snapshots.proof.test_partition import OWN_DECISION, begin_anew
from tests.support import compacting
from tests.support.audited_log import Fault, Story, batch_of, flipped
from tests.support.audited_topics import MemoryTopics


def one_proof(**changed):
    """Write a proof as it is recorded."""
    proof = {"level": "changes", "batch": 5, "offset": 24, **changed}
    return json.dumps({"v": 1, "proofs": [proof]})


def told(fault=None):
    story = Story(MemoryTopics(), "proven", 1)
    story.tell({} if fault is None else {0: fault})
    return story


def more(story, values=lambda values: values):
    """One more batch."""
    partition = story.partitions[0]
    partition.batch += 1
    offsets = story.append("batch", {0: values(batch_of(partition))})[0]
    partition.last_offset = offsets[-1]
    return offsets


def audited(story, recorded, level=Level.CHANGES):
    return compacting.audited(story, 0, level, recorded)


@pytest.mark.parametrize("level", [Level.INTEGRITY, Level.CHANGES])
def test_the_next_audit_begins_at_the_snapshot_before_the_proof(level) -> None:
    """It proves the batches after it, and hashes that snapshot again; the verdict is that of an audit of all."""
    story = told()
    first = audited(story, NOTHING, level)
    proof = first.chain.proven
    assert (proof.level, proof.batch) == (level, 5)
    assert first.chain.audited_all_because == "nothing is proven yet"
    last = more(story)[-1]
    report = audited(story, RecordedProof((proof,)), level)
    assert report.findings == []
    assert report.chain.audited_all_because == ""
    assert report.chain.audited_from == story.partitions[0].written["batch4"][-1]
    assert (report.chain.first_batch, report.chain.last_batch) == (4, 6)
    assert report.checked["increments"] == 3
    assert (report.chain.proven.batch, report.chain.proven.offset) == (6, last)
    if level is Level.CHANGES:
        assert report.checked["batches_proven"] == 3
    assert report.notes["trimmed_pointers"] == 0
    assert report.newest == audited(story, None, level).newest


def test_a_fault_after_the_proof_is_found() -> None:
    """What came after the proof is audited as ever."""
    story = told()
    proof = audited(story, NOTHING).chain.proven
    damaged, *_ = more(story, lambda values: [flipped(values[0]), *values[1:]])
    found = audited(story, RecordedProof((proof,))).findings
    assert {(each.check, each.offset) for each in found} >= {("envelope", damaged)}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"digest": "1:2:3"}, "now batch 5 with digest"),
        ({"batch": 77}, "batch 77 with digest"),
        ({"offset": 10_000}, "no increment of the chain is there now"),
    ],
)
def test_a_log_that_was_rewritten_is_a_finding(changed, says) -> None:
    """What was proven must still be there: the same batch, with the same digest, at the same offset."""
    story = told()
    proof = msgspec.structs.replace(audited(story, NOTHING).chain.proven, **changed)
    (finding,) = audited(story, RecordedProof((proof,))).findings
    assert (finding.check, finding.topic, finding.offset) == ("proof", story.log, proof.offset)
    assert says in finding.detail
    assert "the log was rewritten" in finding.detail


def test_a_snapshot_after_the_proof_is_nothing_to_begin_at() -> None:
    """Between the proof and that snapshot are batches that nobody has audited."""
    story = told()
    whole = audited(story, NOTHING)
    offset = story.partitions[0].written["batch3"][-1]
    digest = record_at(story, story.log, offset).digest
    report = audited(story, RecordedProof((Proof(Level.CHANGES, 3, offset, str(digest)),)))
    assert report.findings == []
    assert report.chain.first_batch == 2
    assert report.chain.proven == whole.chain.proven


def record_at(story, topic, offset):
    (records,) = story.topics.read(topic, 0, offset, offset + 1)
    return decode(records[0].value)


def test_a_lower_level_does_not_count() -> None:
    """Nor is it lost: a proof of each level is kept, and one that covers another replaces it."""
    story = told()
    low = audited(story, NOTHING, Level.INTEGRITY).chain.proven
    report = audited(story, RecordedProof((low,)), Level.CHANGES)
    assert report.chain.audited_all_because == "proven so far only at level integrity (batch 5)"
    assert report.chain.first_batch == 0
    high = report.chain.proven
    assert RecordedProof((low,)).with_one_more(high).proofs == (high,)
    assert RecordedProof((high,)).with_one_more(low).proofs == (high,)
    further = msgspec.structs.replace(low, batch=9, offset=high.offset + 9)
    both = RecordedProof((high,)).with_one_more(further)
    assert set(both.proofs) == {high, further}
    assert both.counting_at(Level.CHANGES) == high
    assert both.counting_at(Level.INTEGRITY) == both.furthest == further


def test_a_damaged_snapshot_is_passed_over() -> None:
    """An entry was changed with all sums right but the digest: the audit begins at the one before, and finds it."""
    story = told(Fault("snapshot4", values=another_value))
    proof = Proof(Level.INTEGRITY, 5, story.partitions[0].written["batch5"][-1])
    report = audited(story, RecordedProof((msgspec.structs.replace(proof, level=Level.CHANGES),)))
    assert report.chain.first_batch == 2
    assert "digest" in {each.check for each in report.findings}


def test_an_audit_begins_at_a_decision() -> None:
    """Its snapshot is of the claim before it, and no increment of the snapshot's batch is in the log."""
    story = told()
    begin_anew(story, 0, OWN_DECISION)
    first = audited(story, NOTHING)
    assert first.findings == []
    story.partitions[0].last_offset = first.chain.last_offset
    last = more(story)[-1]
    report = audited(story, RecordedProof((first.chain.proven,)))
    assert report.findings == []
    assert report.chain.audited_from == story.partitions[0].epoch
    assert report.chain.proven.offset == last
    assert report.checked["batches_proven"] == report.checked["increments"] == 3


def test_a_snapshot_that_is_not_its_batch_is_passed_over() -> None:
    """All its sums are those of its entries, but its batch has another digest."""

    story = Story(MemoryTopics(), "proven", 1)

    def partial(manifest):
        """Its first chunk only, and the sums of that."""
        chunks = manifest.chunks[:1]
        found = EMPTY
        for part in record_at(story, story.snaps, chunks[0].offset).slices:
            found = found.plus(digest_of(part.entries.items()))
        return msgspec.structs.replace(manifest, chunks=chunks, entries_digest=found, entry_count=found.count)

    story.tell({0: Fault("manifest4", manifest=partial)})
    proof = Proof(Level.CHANGES, 5, story.partitions[0].written["batch5"][-1])
    assert audited(story, RecordedProof((proof,))).chain.first_batch == 2


def test_what_was_trimmed_since_is_audited_from_the_start() -> None:
    """The increment of the proof is gone: the log is audited as far as it reaches, and says why."""
    story = told()
    proof = Proof(Level.CHANGES, 2, story.partitions[0].written["batch2"][-1])
    newest = story.partitions[0].pointers[0]
    story.trim(0, newest.increment_offset, newest.first_chunk_offset)
    report = audited(story, RecordedProof((proof,)))
    assert report.findings == []
    assert report.chain.audited_all_because == "the increment of the proven batch 2 was trimmed"


def test_a_finding_leaves_its_digest_out_of_the_proof() -> None:
    """Level changes proves no further than the last digest that was recomputed."""
    story = told()
    more(story, lambda values: [flipped(values[0]), *values[1:]])
    assert audited(story, None).chain.proven.batch == 5


def test_the_record_is_small_and_readable() -> None:
    """Three levels fit many times into what a broker takes beside an offset by default, and come back as they were."""
    digest = f"{10**9}:{'f' * 16}:{'f' * 16}"
    proofs = tuple(Proof(level, 10**12, 10**13, digest, "s" * 32, "7+code:0a1b2c3d" * 4, 10**13) for level in Level)
    text = to_metadata(RecordedProof(proofs))
    assert len(text) < 1500
    assert from_metadata(text) == RecordedProof(proofs)
    short = RecordedProof((Proof(Level.CHANGES, 5, 24),))
    assert to_metadata(short) == '{"v":1,"proofs":[{"level":"changes","batch":5,"offset":24}]}'


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ("", "'' is no record of an audit"),
        ("<script>" * 50, "is no record of an audit"),
        ('{"v":1,"proofs":[{"level":"absolute"}]}', "is no record of an audit"),
        ('{"v":"x"}', "is no record of an audit"),
        ("[" * 4000, "is no record of an audit"),
        (one_proof(batch=-1), "is no record of an audit"),
        (one_proof(offset=-1), "is no record of an audit"),
        (one_proof(at_ms=10**18), "is no record of an audit"),
        ('{"v":2,"proofs":[]}', "a newer build recorded it (version 2)"),
    ],
)
def test_a_record_that_cannot_be_read_counts_for_nothing(metadata, says) -> None:
    """It costs an audit of everything, which says why."""
    recorded = from_metadata(metadata)
    assert says in recorded.problem
    because = audited(told(), recorded).chain.audited_all_because
    assert because.startswith("the recorded proof cannot be read: ")


def test_an_empty_log_proves_nothing() -> None:
    """There is no increment to name; that there is none is the finding."""
    story = Story(MemoryTopics(), "proven", 1)
    report = audited(story, NOTHING)
    assert report.chain.proven is None
    assert [each.check for each in report.findings] == ["genesis"]
