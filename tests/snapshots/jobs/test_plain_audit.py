"""The audit without Spark, of logs on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from snapreplay.service.blocking import BlockingReader
from snapreplay.service.config.settings import load_settings
from snapreplay.snapshots.jobs import audit as plain_audit
from snapreplay.snapshots.jobs.fixed_logs import TopicMissing, freeze
from snapreplay.snapshots.proof.report import AuditReport, Level
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import Fault, Story, flipped
from tests.support.audited_topics import BrokerTopics

pytestmark = pytest.mark.kafka


@pytest.fixture
def told(broker: Any, unique: Any) -> Any:
    """Makes logs with faults, by partition."""

    def tell(faults: dict[int, Fault], partition_count: int = 1) -> Story:
        story = Story(BrokerTopics(broker.bootstrap_servers, unique("teller")), unique("one"), partition_count)
        story.tell(faults)
        return story

    return tell


@pytest.fixture
def audit(broker: Any) -> Any:
    settings = load_settings({"kafka.bootstrap.servers": broker.bootstrap_servers})

    def run(app_id: str, level: Level) -> AuditReport:
        with BlockingReader(settings) as reader:
            return plain_audit.audit(reader, app_id, level)

    return run


@pytest.mark.whole
def test_each_level_finds_what_the_audit_by_spark_finds(told, audit) -> None:
    """A damaged record, a batch whose changes are not its digest, and a snapshot that is not its digest, which the
    second reading finds at every level."""
    story = told(
        {
            0: Fault("batch3", values=lambda values: [flipped(values[0]), *values[1:]]),
            1: Fault("batch3", values=other_changes),
            2: Fault("snapshot4", values=another_value),
        },
        4,
    )

    def found(level: Level) -> set[tuple[str, int]]:
        return {(each.check, each.partition) for each in audit(story.app_id, level).findings}

    assert found(Level.INTEGRITY) == {("envelope", 0), ("changes", 0), ("digest", 2)}
    assert found(Level.CHANGES) == {("envelope", 0), ("changes", 0), ("digest", 2), ("batch_digest", 1)}


def test_an_owner_that_trims_meanwhile_is_waited_out(told, audit, monkeypatch) -> None:
    """What was trimmed between fixing the offsets and reading is read again from the new starts."""
    story = told({})
    moments = []

    def freeze_then_trim(*arguments: Any) -> Any:
        moments.extend(freeze(*arguments))
        pointer = story.partitions[0].pointers[0]
        story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)
        return moments[-1:]

    monkeypatch.setattr(plain_audit, "freeze", freeze_then_trim)
    report = audit(story.app_id, Level.INTEGRITY)
    assert (report.findings, report.notes["trimmed_pointers"]) == ([], 1)
    assert moments[0].log_start == 0 < moments[-1].log_start


def test_another_app_id_is_no_finding(audit, unique) -> None:
    """Its topics are missing, which is said."""
    with pytest.raises(TopicMissing, match="there is no topic"):
        audit(unique("nobody"), Level.INTEGRITY)
