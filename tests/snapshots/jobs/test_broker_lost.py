"""The broker is killed while a job of Spark runs, between two of its steps."""

from functools import wraps

import pytest

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import load_settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.snapshots.jobs import spark_tasks
from snapreplay.snapshots.jobs.spark_tasks import TaskFailed
from snapreplay.spark import Level, audit, compact
from tests.support.audited_log import Story
from tests.support.audited_topics import BrokerTopics
from tests.support.compacting import BEHIND

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


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


@pytest.mark.parametrize(("job", "error"), [(audit, Unreachable), (compact, TaskFailed)])
def test_one_line_says_so_and_nothing_is_published(spark, own_broker, unique, monkeypatch, job, error):
    """In the tasks: no verdict, and the client's own words. With the broker back, the same log audits clean and is
    compacted."""
    story = Story(BrokerTopics(own_broker.bootstrap_servers, unique("teller")), unique("lost"), 2)
    story.tell({}, BEHIND)
    settings = load_settings(
        {
            "kafka.bootstrap.servers": own_broker.bootstrap_servers,
            "timeouts.metadata_ms": 10_000,  # how long a job asks; 5 minutes by default
        }
    )
    with monkeypatch.context() as patched:
        patched.setattr(spark_tasks, "for_each", killing_before(spark_tasks.for_each, own_broker))
        try:
            with pytest.raises(error, match="no usable answer from Kafka while") as lost:
                job(settings, story.app_id)
        finally:
            own_broker.restart()
    assert "\n" not in lost.value.message
    assert whole(settings, story.app_id) == {"proposed"}
