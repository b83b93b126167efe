"""Every check finds the fault made for it, where it was made, and nothing else.

One log, one fault per partition: partitions do not know each other.
"""

import pickle

import msgspec
import pytest

from snapreplay.snapshots.format.envelope import RecordKind, decode, encode
from snapreplay.snapshots.format.records import Chunk
from snapreplay.snapshots.proof import increments
from snapreplay.snapshots.proof.increments import IncrementsProof
from snapreplay.snapshots.proof.records import Condition, Judged
from snapreplay.snapshots.proof.report import AuditedPartition, Findings, RecordedDecision
from tests.snapshots.proof.faults import CASES
from tests.support.audited_log import (
    Fault,
    Partition,
    Story,
    batch_of,
    changed,
    claim_of,
    flipped,
    increment_of,
    snapshot_of,
)
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import audited
from tests.support.entries import ORIGIN, increment

NUMBERS = {name: number for number, name in enumerate(CASES)}
TRIMMED, TRIMMED_MORE, TRIMMED_TOO_FAR, UNTOUCHED, ORPHANS, ACCEPTED, CUT, CUT_UNHEALED, NEW_CHAIN = range(
    len(CASES), len(CASES) + 9
)
DECISION = {"finding": "input-gap-1", "decided": "continues", "reason": "outage", "by": "ada@here"}
OWN_DECISION = {"finding": "increments-replaced-1", "decided": "d", "reason": "r", "by": "process"}


@pytest.fixture(scope="module")
def story():
    """The log with all faults in it, some of its partitions trimmed, one with orphans and strangers."""
    story = Story(MemoryTopics(), "faulty", len(CASES) + 9)
    story.tell({number: CASES[name].fault for name, number in NUMBERS.items()})
    stray = encode(Chunk("stray", 0, "default", []))
    story.append("snapshot", {ORPHANS: [stray, b"a stranger's record"]})
    story.append("batch", {ORPHANS: [b"another stranger's"]})
    begin_chain(story, ACCEPTED, DECISION, skipped=10)
    for number in (CUT, CUT_UNHEALED):
        write_behind_a_cut(story, number)
    begin_chain(story, CUT, OWN_DECISION)
    begin_chain(story, CUT_UNHEALED, DECISION)
    begin_chain(story, NEW_CHAIN, OWN_DECISION)
    for number, kept in ((TRIMMED, 1), (TRIMMED_MORE, 0), (TRIMMED_TOO_FAR, 0)):
        pointer = story.partitions[number].pointers[kept]
        too_far = number == TRIMMED_TOO_FAR
        story.trim(number, pointer.increment_offset, pointer.first_chunk_offset + too_far)
    return story


def begin_chain(story, number, decision, skipped=0):
    """A decision as `snapreplay accept` and owners write it: claim, snapshot, and an increment that begins the chain
    again, with positions that may be others than those of the batch before; then a batch as ever."""
    partition = story.partitions[number]
    (epoch,) = story.append("claim", {number: [claim_of(partition)]})[number]
    partition.epoch = partition.last_offset = epoch
    partition.pointers = []
    chunks = snapshot_of(partition, f"snapshot9-{number}")
    offsets = story.append("snapshot9", {number: chunks})[number]
    story.write_manifest("snapshot9", number, chunks, offsets)
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
def reports(story):
    """Partition → report."""
    return [audited(story, n) for n in range(len(story.partitions))]


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_found_where_it_is_and_nothing_else(reports, story, name) -> None:
    """By the check made for it, at topic, partition and offset, saying what is wrong. A fault does not set off checks
    that it does not concern."""
    case, number = CASES[name], NUMBERS[name]
    written = story.partitions[number].written.get(case.stage)
    offset = written[case.index] if written else case.index
    topic = story.log if case.topic == "log" else story.snaps
    found = reports[number].findings
    named = [f for f in found if (f.check, f.topic, f.offset) == (case.check, topic, offset)]
    assert named, found
    assert any(case.says in finding.detail for finding in named), named
    assert {finding.check for finding in found} == {case.check} | case.also


def test_the_verdict_does_not_depend_on_how_many_batches_are_kept(story, reports, monkeypatch) -> None:
    """A pointer to a batch of long ago, such as an adopted one, is compared with the log itself."""
    monkeypatch.setattr(increments, "RECENT_BATCHES", 1)
    assert [audited(story, n) for n in range(len(story.partitions))] == reports


def test_nothing_is_kept_of_a_batch_without_a_pointer(monkeypatch) -> None:
    """A log of many batches needs no more memory than one of a few."""
    monkeypatch.setattr(increments, "RECENT_BATCHES", 10)
    sizes = []
    for count in (100, 1000):
        findings = Findings(0)
        proof = IncrementsProof(AuditedPartition("a", 0, 0, 0), findings)
        proof.add(Judged(0, b"", Condition.OK, RecordKind.CLAIM, decode(claim_of(Partition("a")))))
        for batch in range(count):
            entry = increment(batch, origin=msgspec.structs.replace(ORIGIN, app_id="a"))
            entry = msgspec.structs.replace(entry, previous_offset=batch, owner_epoch=0)
            proof.add(Judged(batch + 1, b"", Condition.OK, RecordKind.INCREMENT, entry))
        proof.finish()
        assert proof.counts["increments"] == count
        sizes.append(len(pickle.dumps(proof.__dict__)))
    assert sizes[1] < 1.1 * sizes[0]


def test_a_partition_without_a_fault_is_proved_batch_by_batch(reports) -> None:
    """Genesis, four batches with changes, one without a record."""
    assert reports[UNTOUCHED].findings == []
    assert reports[UNTOUCHED].checked["batches_proven"] == 6


def test_what_the_owner_trimmed_is_no_finding(reports) -> None:
    """Logs that begin at the retention floor, of two snapshots or of one, are whole."""
    for number, proven in ((TRIMMED, 4), (TRIMMED_MORE, 2)):
        assert reports[number].findings == []
        assert reports[number].checked["batches_proven"] == proven
    assert reports[TRIMMED_MORE].notes["trimmed_pointers"] == 1


def test_a_newest_snapshot_that_was_trimmed_is_a_finding(reports, story) -> None:
    """One chunk too far, and the state cannot be restored from it."""
    (finding,) = reports[TRIMMED_TOO_FAR].findings
    assert (finding.check, finding.topic) == ("retention", story.log)
    assert finding.offset == story.partitions[TRIMMED_TOO_FAR].written["batch5"][-1]


def test_orphans_and_strangers_are_only_counted(reports) -> None:
    """No increment points to them: worth knowing, no fault."""
    report = reports[ORPHANS]
    assert report.findings == []
    assert report.notes["foreign_records"] == 2
    assert report.notes["unlisted_chunks"] == 1


def test_decisions_are_no_findings_and_are_told(reports, story) -> None:
    """The chain begins again where an operator or its owner said so; a clean audit reports it."""
    for number, decision in ((ACCEPTED, DECISION), (CUT, OWN_DECISION), (NEW_CHAIN, OWN_DECISION)):
        assert reports[number].findings == []
        (offset,) = story.partitions[number].written["decision"]
        (told,) = reports[number].decisions
        assert told == RecordedDecision(number, offset, *decision.values())
    assert reports[CUT].notes["orphaned_increments"] == 2


@pytest.mark.parametrize("name", ["another_chunk", "manifest_counts", "dangling_pointer"])
def test_orphans_hide_no_fault_of_a_snapshot(name) -> None:
    """The increments are read twice then."""
    story = Story(MemoryTopics(), "orphaned", 1)
    story.tell({0: CASES[name].fault})
    write_behind_a_cut(story, 0)
    begin_chain(story, 0, OWN_DECISION)
    assert CASES[name].check in {each.check for each in audited(story, 0).findings}


def test_what_was_written_to_a_topic_that_was_created_again_is_excused_by_its_owner_only() -> None:
    """Its owner has claimed in the former topic, which had fewer records than one batch has here."""
    for decision, excused in ((OWN_DECISION, True), (DECISION, False)):
        story = Story(MemoryTopics(), "again", 1)
        partition = story.partitions[0]
        partition.batch, partition.epoch, partition.last_offset = 7, 0, 0
        lost = increment_of(partition, ranges=True, topic_ids={story.log: "former"})
        (partition.last_offset,) = story.append("batch", {0: [b"a stranger's", lost]})[0][-1:]
        begin_chain(story, 0, decision)
        report = audited(story)
        assert report.notes["orphaned_increments"] == excused
        assert bool(report.findings) is not excused


def test_what_is_not_proved_is_counted() -> None:
    """From the first batch without changes to the next snapshot; a damaged increment is bridged."""
    story = Story(MemoryTopics(), "lean", 2)

    def lean(values):
        return [changed(values[-1], changes=None)]

    def cut(values):
        return [*values[:-1], flipped(values[-1])]

    story.tell({0: Fault("batch3", values=lean), 1: Fault("batch3", values=cut)})
    report = audited(story, 0)
    assert report.findings == []
    assert (report.checked["batches_proven"], report.notes["batches_not_proven"]) == (5, 1)
    damaged = audited(story, 1)
    (finding,) = damaged.findings
    assert (finding.check, finding.offset) == ("envelope", story.partitions[1].written["batch3"][-1])


def test_a_snapshot_of_a_topic_that_was_replaced_is_no_beginning() -> None:
    """Another increment has its offset now."""
    topics = MemoryTopics()
    story = Story(topics, "replaced", 1)
    story.tell({})
    offset = story.partitions[0].written["batch3"][-1]
    foreign = topics.read(story.snaps, 0, *topics.bounds(story.snaps, 0))
    values = (r.value or b"" for rs in foreign for r in rs)
    old = next(decode(value) for value in values if value[5] == RecordKind.MANIFEST)
    story.append("snapshot", {0: [encode(msgspec.structs.replace(old, increment_offset=offset))]})
    story.trim(0, offset, 0)
    assert audited(story, 0).findings == []


def test_what_lies_behind_a_cut_is_excused_by_its_owner_only(reports, story) -> None:
    """Any other process that begins a new chain does not say that the log was cut."""
    (offset,) = story.partitions[CUT_UNHEALED].written["behind_a_cut"]
    found = [f.check for f in reports[CUT_UNHEALED].findings if f.offset == offset]
    assert {"chain", "epochs", "ranges"} <= set(found)
