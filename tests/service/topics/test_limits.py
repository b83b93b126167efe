"""Tests of how large a record a topic takes. On a real broker: tests/attacks/test_b8_what_fails_for_ever.py."""

from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.service.topics.limits import limits_now
from tests.support.topics import healthy_topics


async def test_limits_are_asked_afresh_and_a_missing_topic_keeps_its_own():
    """A topic without a config of its own takes what Kafka takes by default."""
    cluster = healthy_topics(outputs={"max.message.bytes": "20000"})
    known = {"balances-x": 1_000, "payments-x": 1_000, "gone": 7}
    assert await limits_now(cluster, known) == {
        "balances-x": 20_000,
        "payments-x": DEFAULT_LIMIT_BYTES,
        "gone": 7,
    }
