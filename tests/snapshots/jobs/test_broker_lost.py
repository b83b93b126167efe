"""The broker is killed while a job of Spark runs, between two of its steps."""

from functools import wraps
from typing import Any

import pytest

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import load_settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.snapshots.jobs import audit as audit_job
from snapreplay.snapshots.jobs import compact as compact_job
from snapreplay.snapshots.jobs.spark_tasks import TaskFailed
from snapreplay.spark import Level, audit, compact
from tests.support.audited_log import Story
from tests.support.audited_topics import BrokerTopics
from tests.support.compacting import BEHIND

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


JOBS: dict[str, tuple[Any, Any]] = {"audit": (audit_job, audit), "compact": (compact_job, compact)}


@pytest.fixture(scope="module")
def own_broker():
    with LocalBroker() as broker:
        yield broker


def killing_before(step, broker):
    @wraps(step)
    def killed(*arguments, **options):
        broker.kill()
        return step(*arguments, **options)

    return killed


def whole(settings, app_id):
    assert audit(settings, app_id, Level.CHANGES).findings == []
    return {each.outcome for each in compact(settings, app_id).partitions}


@pytest.mark.parametrize(
    ("job", "step", "error"),
    [
        ("audit", "for_each", Unreachable),
        ("audit", "witnessed", Unreachable),
        ("compact", "for_each", TaskFailed),
        ("compact", "witnessed", Unreachable),
    ],
)
def test_one_line_says_so_and_nothing_is_published(spark, own_broker, unique, monkeypatch, job, step, error):
    """In the tasks, and in front of the witness: no verdict, and the client's own words. With the broker back, the same
    log audits clean and is compacted."""
    story = Story(BrokerTopics(own_broker.bootstrap_servers, unique("teller")), unique("lost"), 2)
    story.tell({}, BEHIND)
    settings = load_settings(
        {
            "kafka.bootstrap.servers": own_broker.bootstrap_servers,
            "timeouts.metadata_ms": 10_000,  # how long a job asks; 5 minutes by default
        }
    )
    module, run = JOBS[job]
    with monkeypatch.context() as patched:
        patched.setattr(module, step, killing_before(getattr(module, step), own_broker))
        try:
            with pytest.raises(error, match="no usable answer from Kafka while") as lost:
                run(settings, story.app_id)
        finally:
            own_broker.restart()
    assert "\n" not in lost.value.message
    assert whole(settings, story.app_id) == {"proposed"}
