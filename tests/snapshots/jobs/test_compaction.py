"""Compaction without Spark, of topics in memory, task by task. The truth is what the story's owner knows."""

from itertools import count

import msgspec
import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.jobs import compaction
from snapreplay.snapshots.jobs.compaction import CompactionReport, Outcome
from snapreplay.snapshots.jobs.fixed_logs import TopicMissing, freeze
from snapreplay.state.digest import Digest
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import Fault, changed, flipped
from tests.support.compacting import (
    BEHIND,
    Killed,
    MemoryClient,
    Steps,
    Topics,
    assert_good,
    audited,
    compacted,
    history,
    increments,
    now,
    owner_snapshots,
    proposals,
    told,
)
from tests.support.entries import rewrapped


def test_the_last_batch_of_each_partition_is_proposed():
    """An ordinary snapshot that no increment points to; the log itself is not touched."""
    story = told(partitions=3)
    ends = [now(story, n).log_end for n in range(3)]
    results = compacted(story)
    for number, partition in enumerate(story.partitions):
        result = results[number]
        (offset,) = proposals(story, number)
        assert (result.outcome, result.batch) == (Outcome.PROPOSED, 5)
        assert (result.manifest_offset, result.base) == (offset, f"snapshot2-{number}")
        assert (result.entries, result.batches) == (len(partition.state), 3)
        assert_good(story, number)
        report = audited(story, number)
        assert report.findings == []
        assert report.notes["unpointed_manifests"] == 1
        assert now(story, number).log_end == ends[number]
    assert CompactionReport("ledger", list(results.values()), 0.0).exit_code == 0


def test_without_a_snapshot_it_begins_at_the_genesis():
    """If the log is whole."""
    story = told(stages=["claim", "genesis", "batch1", "batch2"])
    assert compacted(story)[0].base is None
    assert_good(story)
    assert len(proposals(story)) == 1


@pytest.mark.parametrize(
    "stages",
    [
        ["claim", "genesis", "batch1", "snapshot1", "batch5"],  # the last batch only points
        ["claim"],
        [],
    ],
)
def test_there_is_nothing_to_do(stages):
    """Nothing was processed since the newest snapshot; no genesis yet; an empty log."""
    story = told(stages=stages)
    end = now(story).snapshots_end
    assert compacted(story)[0].outcome is Outcome.NOTHING_TO_DO
    assert now(story).snapshots_end == end


def test_records_without_an_owner_are_passed_over():
    """In both topics; they are neither damage nor a part of the state."""
    story = told()
    story.topics.commit(story.log, {0: [b"hello"]})
    story.topics.append(story.snaps, {0: [b"hello"]})
    assert compacted(story)[0].outcome is Outcome.PROPOSED
    assert_good(story)


def test_an_app_that_is_not_there_is_named():
    """Nothing to do is not the same as nothing there."""
    with pytest.raises(TopicMissing, match="unknown-increments"):
        freeze(MemoryClient(Topics(told().topics)), "unknown")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("batch3", values=lambda v: [flipped(v[0]), *v[1:]]), "crc32"),
        (Fault("batch3", values=other_changes), "after batch 3 the state has digest"),
        (Fault("batch4", values=lambda v: v[1:]), "names 2 changes records"),
        (Fault("batch4", values=lambda v: [*v[:-1], changed(v[-1], batch=7)]), "its predecessor"),
        (Fault("snapshot2", values=another_value), "add up to"),
        (Fault("batch5", values=lambda v: [flipped(v[0])]), "crc32"),
        (Fault("batch4", values=lambda v: [flipped(v[-1])]), "after batch 5 the state has digest"),
        (
            Fault("batch4", values=lambda v: [rewrapped(v[0], version=9), *v[1:]]),
            "a format version that this build does not know",
        ),
        (Fault("batch4", values=lambda v: [b"SNRP\x02" + v[0][5:], *v[1:]]), "not what was written"),
    ],
)
def test_what_cannot_be_proved_is_not_proposed(fault, says):
    """The record is named; the other partition gets its proposal, and the exit code says that one has none."""
    story = told({0: fault}, 2)
    story.trim(0, story.partitions[0].written["batch2"][-1], 0)  # nor from the genesis
    results = compacted(story)
    assert results[0].outcome is Outcome.NOT_POSSIBLE
    assert says in results[0].reason
    assert results[1].outcome is Outcome.PROPOSED
    assert not proposals(story, 0)
    assert audited(story).findings  # as the hint says
    assert "--level changes" in results[0].hint or "crc32" in says
    assert CompactionReport("ledger", list(results.values()), 0.0).exit_code == 1


def test_a_damaged_snapshot_is_passed_over():
    """The next older one, or the genesis, leads to the same state."""
    story = told({0: Fault("snapshot2", values=another_value)})
    assert compacted(story)[0].base is None
    assert_good(story)


def test_a_batch_without_changes_is_left_to_the_owner():
    """Only the app's handlers know what it did."""
    lean = lambda v: [changed(v[-1], changes=None)]  # noqa: E731 - a table of one
    result = compacted(told({0: Fault("batch3", values=lean)}))[0]
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "recorded no changes" in result.reason
    assert "let the owner take its snapshots" in result.hint


def test_chunks_that_read_back_otherwise_get_no_manifest(monkeypatch):
    """What was read has the last word before anything becomes visible."""
    monkeypatch.setattr(compaction, "digest_of_stores", lambda _: Digest(1, 2, 3))
    story = told()
    result = compacted(story)[0]
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "read back with digest" in result.reason
    assert not proposals(story)


def decided(story):
    """An operator has begun a new chain."""
    story.tell({}, ["claim2"])
    last = increments(story)[max(increments(story))]
    begun = msgspec.structs.replace(
        last, batch=6, decision={"finding": "x"}, pointers=[], previous_offset=last.owner_epoch
    )
    story.topics.commit(story.log, {0: [encode(begun)]})


def rewritten(story):
    """Another record at the same offset: the topic was cut, and filled again."""
    offset = max(increments(story))
    other = msgspec.structs.replace(increments(story)[offset], stream_time_ms=999)
    story.topics.cut(story.log, 0, offset)
    story.topics.commit(story.log, {0: [encode(other)]})


@pytest.mark.parametrize(
    ("happens", "outcome", "says"),
    [
        (owner_snapshots, Outcome.SUPERSEDED, "not older than batch 5"),
        (decided, Outcome.NOT_POSSIBLE, "a decision at offset"),
        (rewritten, Outcome.NOT_POSSIBLE, "not what was folded"),
        (lambda s: s.topics.cut(s.log, 0, max(increments(s))), Outcome.NOT_POSSIBLE, "has lost batch"),
        (lambda s: s.trim(0, 0, now(s).snapshots_end), Outcome.SUPERSEDED, "has trimmed"),
    ],
)
def test_everything_is_looked_at_again_before_the_manifest(happens, outcome, says):
    """No manifest ahead of the log, of another log, or of a batch that a newer snapshot has."""
    story = told()
    result = compacted(story, Topics(story.topics, meanwhile=lambda: happens(story)))[0]
    assert (result.outcome, says in result.reason) == (outcome, True), result.reason
    assert not proposals(story)


def test_topics_that_were_created_again_get_no_manifest():
    """By their ids, also where the offsets look right."""
    story = told()
    topics = Topics(story.topics, meanwhile=lambda: topics.ids.update({story.snaps: "another"}))
    result = compacted(story, topics)[0]
    assert "were created again" in result.reason
    assert not proposals(story)


def test_a_topic_that_the_owner_has_not_seen_yet_gets_no_manifest():
    """It was created again before the job began; the last increment records the id of the former one."""
    former = {"ledger-snapshots": "former"}
    story = told({0: Fault("batch5", values=lambda v: [changed(v[0], topic_ids=former)])})
    result = compacted(story)[0]
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "batch 5 recorded former" in result.reason
    assert not proposals(story)


def test_a_partition_that_is_trimmed_while_it_is_read_is_read_again():
    """From its new start. After three times it is given up, and told."""
    story = told(stages=[*BEHIND[:-1], "snapshot4", "batch5", "batch6"])
    pointer = story.partitions[0].pointers[0]

    def trim():
        story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)

    topics = Topics(story.topics, Steps(8, trim))
    assert compacted(story, topics)[0].outcome is Outcome.PROPOSED
    assert_good(story)


def test_a_topic_that_is_gone_ends_the_job_though_the_partition_was_trimmed():
    """What another command line would mend is not read again."""
    story = told(stages=[*BEHIND[:-1], "snapshot4", "batch5", "batch6"])
    pointer = story.partitions[0].pointers[0]

    def trim_and_miss():
        story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)
        raise TopicMissing("no such topic")

    with pytest.raises(TopicMissing):
        compacted(story, Topics(story.topics, Steps(8, trim_and_miss)))


def test_tasks_that_run_twice_propose_twice():
    """Each attempt has an id of its own; the owner adopts one."""
    story = told(partitions=2)
    compacted(story, times=2)
    for number in range(2):
        assert len(proposals(story, number)) == 2
        assert_good(story, number)


def lost():
    raise Unreachable("no broker answers")


@pytest.mark.parametrize("then", [None, lost])
def test_a_job_that_is_killed_or_loses_the_brokers_at_any_step_leaves_nothing_or_a_good_proposal(then):
    """The audit is clean, and the next job does what is left."""
    seen = set()
    for at in count(1):
        story = told(partitions=2)
        try:
            compacted(story, Topics(story.topics, Steps(at, then)))
        except (Killed, Unreachable):
            pass
        else:
            break
        for number in range(2):
            assert_good(story, number)
            assert audited(story, number).findings == []
        seen.add(sum(len(proposals(story, number)) for number in range(2)))
        assert {each.outcome for each in compacted(story).values()} == {Outcome.PROPOSED}
    assert at > 30
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("seed", range(10))
def test_a_job_beside_a_busy_owner(seed):
    """The owner works meanwhile: each proposal is of a batch of the log and has its state."""
    history(seed)
