"""The audit of what a service left behind, whole and running."""

import pytest

from snapreplay.snapshots.jobs.audit import audit, main
from tests.support.audited_log import Story


@pytest.fixture(scope="module")
def story(broker, unique):
    """A whole log of three partitions."""
    story = Story(broker.bootstrap_servers, unique("audited"), 3)
    story.tell({})
    return story


def test_a_whole_log_is_fine(spark, broker, story) -> None:
    """Nothing is found, and everything was looked at: aborted transactions and markers are no gaps."""
    report = audit(broker.bootstrap_servers, story.app_id)
    assert report.findings == []
    assert report.exit_code == 0
    assert report.partition_count == 3
    entries = sum(len(partition.state) for partition in story.partitions)
    assert report.checked == {
        "claims": 6,
        "increments": 18,
        "changes_records": 24,
        "pointers": 6,
        "manifests": 6,
        "chunks": report.checked["chunks"],
        "input_records": 60,
        "snapshots_hashed": 3,
        "entries_hashed": entries,
    }
    assert report.checked["chunks"] > 12
    assert set(report.notes.values()) == {0}
