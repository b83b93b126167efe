"""Scenario (f): an unclean leader election takes the tail of an input while an owner has fetched it, and other records
take its offsets. One broker has everything but the input, so that nothing else stops the owner."""

import asyncio
import os
import signal
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.chaos.reassign import reassign
from tests.support import reference, tampering
from tests.support.deadlines import scaled
from tests.support.three_brokers import three_brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]
ONE_COPY = {
    "broker.session.timeout.ms": "4000",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
LEADER, FOLLOWER, REST = 0, 1, 2
KEPT, LOST, OTHERS = 520, 1000, 2000
SLOW_S = 0.05
"""For each record: what is left of the kept ones takes longer than the election."""
EXPELLED_S = 5.0
"""Longer than the session of the owner's membership."""


@pytest.fixture(scope="module")
def three():
    """Copies only where a test wants them."""
    with three_brokers(ONE_COPY) as brokers:
        yield brokers


@pytest.fixture
def whole(three):
    """Leave all three running and no link cut at the end of the test."""
    yield three
    three.heal()
    three.restart(LEADER)


def metadata(servers, topic):
    """The topic's partitions, as a broker knows them."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return admin.list_topics(topic, timeout=scaled(20.0)).topics[topic].partitions


def until(servers, topic, holds):
    """Wait until it holds for each partition of the topic."""
    deadline = time.monotonic() + scaled(60.0)
    while not all(map(holds, found := list(metadata(servers, topic).values()))):
        told = [(each.leader, each.replicas, each.isrs) for each in found]
        assert time.monotonic() < deadline, f"{topic}: {told}"
        time.sleep(0.1)  # between two looks, under the deadline


def move(servers, topic, *brokers):
    """All partitions of the topic to these brokers, in sync, led by the first one."""
    nodes = [number + 1 for number in brokers]
    reassign(servers, topic, dict.fromkeys(metadata(servers, topic), nodes))
    until(
        servers,
        topic,
        lambda at: at.leader == nodes[0] and set(at.replicas) == set(at.isrs) == set(nodes),
    )


def place(servers, topic):
    """The input has a leader and a follower that may lead without being in sync. All else is somewhere else."""
    with closing(Consumer({"bootstrap.servers": servers, "group.id": topic})) as consumer:
        consumer.committed([TopicPartition(topic, 0)], scaled(30.0))  # makes __consumer_offsets
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for name in admin.list_topics(timeout=scaled(20.0)).topics:
        if name != topic:
            move(servers, name, REST)
    move(servers, topic, LEADER)  # who leads alone still leads when another one follows
    move(servers, topic, LEADER, FOLLOWER)
    tampering.configure(servers, topic, "unclean.leader.election.enable", "true")


def lose_the_tail(three, topic):
    """The leader dies, and the follower that missed the last records leads."""
    three.kill(LEADER)
    three.heal()
    until(three.bootstrap_servers, topic, lambda at: at.leader == FOLLOWER + 1)
    assert tampering.end_offset(three.bootstrap_servers, topic) == KEPT


async def while_it(owner, child, three, topic):
    """The election, and the records of others, while the owner runs, is stopped, or reaches no broker."""
    if owner == "stopped by a signal":
        os.kill(child.pid, signal.SIGSTOP)
    if owner == "cut off":
        for broker in (LEADER, FOLLOWER, REST):
            three.cut(broker, "clients")
    if owner != "running":
        await asyncio.sleep(EXPELLED_S)  # the scenario itself
    try:
        await asyncio.to_thread(lose_the_tail, three, topic)
        others = [(f"k{n % 20}", {"amount": 10_000 + n}) for n in range(OTHERS)]
        await asyncio.to_thread(reference.send, three.bootstrap_servers, topic, 1, others)
    finally:
        os.kill(child.pid, signal.SIGCONT)


async def started(wide, fast, slow):
    """Start with records of which so many are processed at once and so many slowly. The follower has the first
    `KEPT` of all."""
    three, here = wide.three, await wide.ledger("cut", 1)
    topic = here.app.inputs[0].name
    await asyncio.to_thread(place, three.bootstrap_servers, topic)
    await here.feed(min(fast, KEPT))
    await here.feed(max(0, KEPT - fast), sleep_s=SLOW_S)
    await asyncio.to_thread(until, three.bootstrap_servers, topic, lambda at: len(at.isrs) == 2)
    three.cut(FOLLOWER, "peers")
    await asyncio.to_thread(
        until, wide.three.server(REST), topic, lambda at: at.isrs == [LEADER + 1]
    )
    await here.feed(max(0, fast - KEPT))
    await here.feed(slow - max(0, KEPT - fast), sleep_s=SLOW_S)
    child = wide.start(here, "sleepy")
    await wide.took_in(child, fast)
    return here, child, topic


@pytest.mark.parametrize("owner", ["running", "stopped by a signal", "cut off"])
async def test_what_was_fetched_and_is_gone_is_not_processed(wide, whole, owner):
    """All 1,520 records are fetched, fewer than 520 committed. Then the log ends at 520 and 2,000 others come: the
    result is exactly that of the log as it is now."""
    here, child, topic = await started(wide, 60, KEPT + LOST - 60)
    await while_it(owner, child, whole, topic)
    await wide.all_live(child, 1)
    await wide.took_in(child, KEPT + OTHERS)
    assert await asyncio.to_thread(child.terminate) == 0
    await wide.judge(here)


@pytest.mark.parametrize("owner", ["running", "stopped by a signal", "cut off"])
async def test_what_was_committed_and_is_gone_is_told(wide, whole, owner):
    """Records behind offset 520 are committed when the log ends there: FAILED by name, with the offsets."""
    _, child, topic = await started(wide, KEPT + 20, LOST - 20)
    await while_it(owner, child, whole, topic)

    def failed():
        return [each for each in child.partitions().values() if each["phase"] == "failed"]

    await asyncio.to_thread(child.until, failed, "a failed partition", 90.0)
    (status,) = failed()
    assert status["error"]["kind"] in ("InputReplaced", "InputShorter"), status["error"]
    assert f"{topic}-0" in status["error"]["message"]
    assert f"{KEPT}" in status["error"]["message"]
