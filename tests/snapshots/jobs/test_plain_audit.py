"""The audit without Spark, of logs in memory."""

from functools import partial
from itertools import count

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.snapshots.jobs.audit import audit
from snapreplay.snapshots.jobs.fixed_logs import TopicMissing
from snapreplay.snapshots.proof.report import Level
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import STAGES, Fault, flipped
from tests.support.compacting import Steps, Topics, told


def audited(story, level=Level.INTEGRITY, step=None, app_id=None):
    with Topics(story.topics, step).open() as client:
        return audit(client, app_id or story.app_id, level)


def test_each_level_finds_its_faults():
    """A damaged record, a batch whose changes are not its digest, and a snapshot that is not its
    digest."""
    faults = {
        0: Fault("batch3", values=lambda values: [flipped(values[0]), *values[1:]]),
        1: Fault("batch3", values=other_changes),
        2: Fault("snapshot4", values=another_value),
    }
    story = told(faults, 4, STAGES)
    found = {level: {(f.check, f.partition) for f in audited(story, level).findings} for level in list(Level)[:2]}
    assert found[Level.INTEGRITY] == {("envelope", 0), ("changes", 0), ("digest", 2)}
    assert found[Level.CHANGES] == found[Level.INTEGRITY] | {("batch_digest", 1)}


def test_a_partition_that_is_trimmed_at_any_step_is_read_again_from_its_new_start():
    """Nothing that was trimmed is a finding. Without a trim a lost broker ends the audit."""
    trimmed = set()
    for at in count(1):
        story = told(stages=STAGES)
        pointer = story.partitions[0].pointers[0]
        steps = Steps(at, partial(story.trim, 0, pointer.increment_offset, pointer.first_chunk_offset))
        report = audited(story, step=steps)
        assert report.findings == []
        trimmed.add(report.notes["trimmed_pointers"])
        if steps.count < at:
            break
    assert at > 5
    assert trimmed == {0, 1}


def test_what_is_no_finding_is_an_error():
    """An app id without topics; a broker that does not answer."""
    with pytest.raises(TopicMissing, match="there is no topic"):
        audited(told(), app_id="unknown")

    def lost():
        raise Unreachable("no broker answers")

    with pytest.raises(Unreachable):
        audited(told(), step=Steps(8, lost))
