"""Tests of what became of proposals, read from topics in memory."""

from itertools import count

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.jobs.compaction import Outcome, answered
from tests.support.audited_log import Fault
from tests.support.compacting import Steps, Topics, compacted, owner_snapshots, proposals, told


def point(story, result):
    """The owner's next increment points to the proposal."""
    (manifest,) = proposals(story, result.partition).values()
    first = min(ref.offset for ref in manifest.chunks)
    pointer = Pointer(
        manifest.snapshot_id, result.manifest_offset, first, manifest.batch, manifest.increment_offset, manifest.digest
    )
    partition = story.partitions[result.partition]
    partition.pointers = [pointer, *partition.pointers]


def test_the_answers_are_read_from_the_log():
    """Adopted, superseded by another snapshot, or not answered yet."""
    story = told(partitions=4)
    results = list(compacted(story).values())
    point(story, results[0])
    story.tell({2: Fault("silence"), 3: Fault("silence")}, ["batch6"])
    topics = Topics(story.topics)
    found = answered(topics.open, story.app_id, results, 0.01)
    assert [each.outcome for each in found] == ["adopted", "waiting", "waiting", "waiting"]
    owner_snapshots(story)
    found = answered(topics.open, story.app_id, results[1:2], 0.01)
    assert found[0].outcome is Outcome.SUPERSEDED


def test_brokers_lost_while_it_waits_take_back_no_proposal():
    """The answer is open, and says why."""

    def lost():
        raise Unreachable("no broker answers")

    story = told(partitions=2)
    results = list(compacted(story).values())
    found = answered(Topics(story.topics, Steps(3, lost)).open, story.app_id, results, 9.0)
    assert [(each.outcome, each.manifest_offset) for each in found] == [
        (Outcome.WAITING, each.manifest_offset) for each in results
    ]
    assert "no broker answers" in found[0].reason


def test_an_answer_that_was_there_before_the_brokers_were_lost_stays():
    """Only what could not be asked is open."""

    def lost():
        raise Unreachable("no broker answers")

    story = told(partitions=2)
    results = list(compacted(story).values())
    point(story, results[0])
    story.tell({1: Fault("silence")}, ["batch6"])
    seen = set()
    for at in count(1):
        steps = Steps(at, lost)
        topics = Topics(story.topics, steps)
        found = answered(topics.open, story.app_id, results, 1e-9)  # asks once
        seen.add((found[0].outcome, "could not be asked" in found[1].reason))
        if steps.count < at:
            break
    assert seen == {("waiting", True), ("adopted", True), ("adopted", False)}
