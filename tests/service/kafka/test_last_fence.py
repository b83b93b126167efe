"""The coordinator's memory of fences, of a real broker: what tells our own last fence from another owner's."""

from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.lineage import Lineage, unbroken
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import LogRecord, NewTopic
from tests.support.deadlines import scaled
from tests.support.inside import send_uncommitted
from tests.support.kafka import hasty, until_async

pytestmark = pytest.mark.kafka


async def test_the_last_fence_is_ours_until_somebody_else_fences(settings, unique):
    """After any commit of ours, and while a transaction of ours is open; then it is another one for ever."""
    cluster, topic, name = KafkaCluster(settings), unique("fenced"), unique("id")
    await cluster.create_topics([NewTopic(topic, 1)])
    assert await cluster.last_fence(name) is None
    ours = await cluster.fence(name)
    try:
        assert unbroken(ours.lineage, await cluster.last_fence(name))
        await ours.commit(0, (), (LogRecord(topic, b"1"),))
        assert unbroken(ours.lineage, await cluster.last_fence(name))
        await send_uncommitted(ours, topic, b"2")
        assert unbroken(ours.lineage, await cluster.last_fence(name))
        theirs = await cluster.fence(name)
        last: Any = await cluster.last_fence(name)
        assert unbroken(ours.lineage, last, left_open=True)
        assert not unbroken(ours.lineage, last)
        await theirs.commit(0, (), (LogRecord(topic, b"3"),))
        last = await cluster.last_fence(name)
        assert last.lineage == theirs.lineage
        assert not unbroken(ours.lineage, last, left_open=True)
        await theirs.discard()
    finally:
        await ours.discard()


@pytest.mark.whole
async def test_our_own_transaction_that_timed_out_is_no_other_owner(settings, unique):
    """The broker raises the epoch by one and aborts; nothing was committed."""
    # Long enough that a busy machine comes to write in it.
    short = settings.replaced(timeouts=settings.timeouts.replaced(transaction_ms=int(scaled(3) * 1000)))
    cluster, topic, name = KafkaCluster(short), unique("timed-out"), unique("id")
    await cluster.create_topics([NewTopic(topic, 1)])
    ours = await cluster.fence(name)
    try:
        await send_uncommitted(ours, topic, b"1")
        last: Any = await until_async(
            lambda: cluster.last_fence(name), lambda found: found is not None and found.lineage != ours.lineage
        )
        assert last.lineage == Lineage(ours.lineage.producer_id, ours.lineage.producer_epoch + 1)
        assert unbroken(ours.lineage, last)
    finally:
        await ours.discard()


async def test_no_broker_is_no_answer(closed_port):
    """Neither yes nor no."""
    alone = hasty(f"127.0.0.1:{closed_port}", 500)
    with pytest.raises(Unreachable):
        await KafkaCluster(alone).last_fence("anybody")
