"""Topics as DataFrames over fixed offsets, on a real broker."""

import pytest

from snapreplay.snapshots.jobs.read import SPARK_ERRORS, Frozen, KafkaSource
from tests.support.audited_log import Story
from tests.support.audited_topics import BrokerTopics

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_part_of_a_topic_is_read_or_the_read_fails(spark, broker, unique) -> None:
    """Half-open offsets per partition, committed records only; once some are trimmed, never fewer in silence."""
    story = Story(BrokerTopics(broker.bootstrap_servers, unique("teller")), unique("read"), 2)
    story.tell({})
    source = KafkaSource(spark, broker.bootstrap_servers, {"client.id": "test"})

    def offsets(starts, ends):
        frozen = Frozen(story.log, starts, ends, "read_committed")
        rows = source.frame(frozen, ("partition", "offset")).collect()
        return sorted((row.partition, row.offset) for row in rows)

    (claim,), (genesis,) = (story.partitions[0].written[s] for s in ("claim", "genesis"))
    assert offsets([0, 2], [genesis + 1, 2]) == [(0, claim), (0, genesis)]
    story.trim(0, 5, 0)
    with pytest.raises(SPARK_ERRORS, match=r"out of range|may be lost"):
        offsets([0, 2], [genesis + 1, 2])
