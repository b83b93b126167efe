"""The audit by Spark, of what a service left behind on a real broker."""

import pytest

from snapreplay.service.config.settings import load_settings
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import Fault, Story, flipped
from tests.support.audited_topics import BrokerTopics

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def settings(broker):
    return load_settings({"kafka.bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def told(broker, unique):
    """Makes logs with faults, by partition."""

    def tell(faults, partition_count=1):
        topics = BrokerTopics(broker.bootstrap_servers, unique("teller"))
        story = Story(topics, unique("audited"), partition_count)
        story.tell(faults)
        return story

    return tell


def test_a_whole_log_is_fine(spark, settings, told) -> None:
    """Everything is looked at. Aborted transactions and markers are no gaps, an open transaction is neither looked at
    nor waited for."""
    story = told({}, 3)
    story.topics.open_transaction(story.log, {0: [b"not yet"]})
    report = audit(settings, story.app_id, Level.CHANGES)
    assert report.findings == []
    assert (report.app_id, report.partition_count) == (story.app_id, 3)
    written = [partition.written for partition in story.partitions]
    assert report.checked == {
        "claims": 6,
        "increments": 18,
        "changes_records": 27,
        "pointers": 6,
        "manifests": 6,
        "chunks": sum(len(w["snapshot2"]) + len(w["snapshot4"]) for w in written),
        "input_records": 60,
        "batches_proven": 18,
        "changes_folded": sum(len(p.state) + 5 for p in story.partitions) + 3 * 3,
    }
    assert set(report.notes.values()) == {0}


def test_each_level_finds_its_faults(spark, settings, told) -> None:
    """A damaged record, a batch whose changes are not its digest, and a snapshot that is not its digest. Every level
    hashes the snapshots."""
    story = told(
        {
            0: Fault("batch3", values=lambda values: [flipped(values[0]), *values[1:]]),
            1: Fault("batch3", values=other_changes),
            2: Fault("snapshot4", values=another_value),
        },
        4,
    )
    levels = (Level.INTEGRITY, Level.CHANGES)
    by_level = {level: audit(settings, story.app_id, level) for level in levels}
    found = {level: {(each.check, each.partition) for each in report.findings} for level, report in by_level.items()}
    assert found[Level.INTEGRITY] == {("envelope", 0), ("changes", 0), ("digest", 2)}
    assert found[Level.CHANGES] == found[Level.INTEGRITY] | {("batch_digest", 1)}
    assert {report.exit_code for report in by_level.values()} == {1}
