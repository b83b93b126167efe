"""The compaction by Spark, on a real broker. What it does at each step without one: `test_compaction`."""

import pytest

from snapreplay.service.blocking import BlockingReader
from snapreplay.service.config.settings import load_settings
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import Manifest
from snapreplay.snapshots.jobs.compaction import Outcome
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit, compact
from tests.snapshots.proof.faults import other_changes
from tests.support.audited_log import Fault, Story
from tests.support.audited_topics import BrokerTopics
from tests.support.compacting import BEHIND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def settings(broker):
    return load_settings({"kafka.bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def told(broker, unique):
    """A log whose newest snapshot is of batch 2 of 5, with faults by partition."""
    topics = BrokerTopics(broker.bootstrap_servers, unique("teller"))
    story = Story(topics, unique("compacted"), 3)
    story.tell({1: Fault("batch3", values=other_changes)}, BEHIND)
    return story


def test_each_partition_gets_a_proposal_that_an_audit_finds_whole(spark, settings, told):
    """What cannot be proved gets none, and is named. A second job proposes again: the first is not adopted yet."""
    first, second = (compact(settings, told.app_id) for _ in range(2))
    for report in (first, second):
        outcomes = [each.outcome for each in report.partitions]
        assert outcomes == [Outcome.PROPOSED, Outcome.NOT_POSSIBLE, Outcome.PROPOSED]
        assert report.exit_code == 1
        assert "batch 3" in report.partitions[1].reason
    with BlockingReader(settings) as reader:
        for each in (first.partitions[0], second.partitions[2]):
            place = each.partition, each.manifest_offset, each.manifest_offset + 1
            ((record,),) = reader.read(told.snaps, *place, committed=False)
            manifest = decode(record.value or b"")
            assert isinstance(manifest, Manifest)
            assert (manifest.snapshot_id, manifest.batch) == (each.snapshot_id, 5)
            assert (manifest.proposed_by or "").startswith("compact@")
            assert dict(record.headers)["snapreplay.kind"] == b"manifest"
    found = audit(settings, told.app_id, Level.CHANGES)
    assert {(each.check, each.partition) for each in found.findings} == {("batch_digest", 1)}
    assert found.notes["unpointed_manifests"] == 4
