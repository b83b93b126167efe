"""Topics as DataFrames over fixed offsets, on a real broker."""

import pytest

from snapreplay.snapshots.jobs.read import (
    SPARK_ERRORS,
    ClusterUnavailable,
    Frozen,
    KafkaSource,
    TopicMissing,
)
from tests.support.audited_log import Story

COLUMNS = ("partition", "offset", "value")


@pytest.fixture(scope="module")
def story(broker, unique):
    """Aborted records, markers and committed ones in two partitions."""
    story = Story(broker.bootstrap_servers, unique("read"), 2)
    story.tell({})
    return story


@pytest.fixture
def source(spark, broker) -> KafkaSource:
    """A source on the session's broker."""
    return KafkaSource(spark, broker.bootstrap_servers, {"client.id": "test"})


def offsets(frame) -> list[tuple[int, int]]:
    """Which records a frame holds."""
    return sorted((row.partition, row.offset) for row in frame.collect())


def test_a_frozen_topic_holds_the_committed_records(source, story) -> None:
    """All that was committed, nothing aborted, no markers."""
    frozen = source.freeze(story.log, source.starts(story.log), "read_committed")
    written = [
        (number, offset)
        for number, partition in enumerate(story.partitions)
        for stage, offsets in partition.written.items()
        if not stage.startswith(("snapshot", "manifest"))
        for offset in offsets
    ]
    assert offsets(source.frame(frozen, COLUMNS)) == sorted(written)
    assert frozen.starts == [0, 0]


def test_what_is_written_later_is_not_seen(source, story) -> None:
    """The ends are fixed before anything is read, for every read of the same frozen topic."""
    frozen = source.freeze(story.snaps, source.starts(story.snaps), "read_uncommitted")
    before = offsets(source.frame(frozen, COLUMNS))
    story.append("snapshot", {0: [b"later"], 1: [b"later"]})
    assert offsets(source.frame(frozen, COLUMNS)) == before


def test_a_part_of_a_topic_may_be_read(source, story) -> None:
    """Half-open offsets per partition; an empty range gives nothing."""
    part = Frozen(story.snaps, [1, 2], [3, 2], "read_uncommitted")
    assert offsets(source.frame(part, COLUMNS)) == [(0, 1), (0, 2)]


def test_a_trim_below_the_start_fails_the_read(source, broker, unique) -> None:
    """Never fewer records in silence."""
    story = Story(broker.bootstrap_servers, unique("trimmed"), 1)
    story.tell({})
    frozen = source.freeze(story.log, source.starts(story.log), "read_committed")
    story.trim(0, 5, 0)
    assert source.starts(story.log) == [5]
    with pytest.raises(SPARK_ERRORS, match=r"out of range|may be lost"):
        source.frame(frozen, COLUMNS).collect()


def test_a_missing_topic_is_named(source, unique) -> None:
    """With what may be wrong: the app id or the cluster."""
    name = unique("missing")
    with pytest.raises(TopicMissing, match=f"{name}.*check the app id"):
        source.starts(name)


def test_a_cluster_that_does_not_answer_is_no_finding(spark, monkeypatch) -> None:
    """It could not run, and says so within its deadline."""
    monkeypatch.setattr("snapreplay.snapshots.jobs.read._DEADLINE_MS", 1500)
    source = KafkaSource(spark, "127.0.0.1:1", {})
    with pytest.raises(ClusterUnavailable, match="does not answer"):
        source.starts("any")
