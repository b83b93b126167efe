"""A member waits for the answer to a join as long as a rebalance may take, but not that long for other answers."""

from tests.service.kafka.test_membership import LONG_SESSION_MS, Member
from tests.support.stage import until
from tests.support.wire import Proxy

HASTY = {"request.timeout.ms": 2000}
SHORT_SESSION_MS = 6000
"""Longer than a request of the others may take."""
JOIN, HEARTBEAT = 11, 12


async def test_a_coordinator_that_answers_no_heartbeat_is_noticed(broker, new_topic, unique):
    """After request.timeout.ms, not after the time that a join may take: until then it would not be reported."""
    proxy, topic = Proxy(broker.bootstrap_servers), await new_topic(partitions=1)
    async with proxy.through():
        member = Member(broker.bootstrap_servers, unique("app"), topic, session_timeout_ms=LONG_SESSION_MS, kafka=HASTY)
        await until(lambda: member.owns)
        proxy.fault = lambda key: "mute"
        await until(lambda: member.membership.trouble, "it is reported", 10)
        proxy.fault = lambda key: "pass"
        await until(lambda: not member.membership.trouble)
        assert proxy.seen[HEARTBEAT]
        await member.membership.leave()
        await member.task


async def test_a_join_may_take_longer_than_other_requests(broker, new_topic, unique):
    """The coordinator answers it when all have joined, or the session of one that is dead has timed out."""
    proxy, topic, app = Proxy(broker.bootstrap_servers), await new_topic(partitions=1), unique("app")
    dead = Member(broker.bootstrap_servers, app, topic, "one", session_timeout_ms=SHORT_SESSION_MS)
    await until(lambda: dead.owns)
    await dead.crash()
    async with proxy.through():
        member = Member(broker.bootstrap_servers, app, topic, "two", kafka=HASTY)
        await until(lambda: member.owns)
        assert proxy.seen[JOIN] <= 2  # the first one gets its id
        await member.membership.leave()
        await member.task
