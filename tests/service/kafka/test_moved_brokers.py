"""Tests of a cluster whose brokers all have other addresses than before: only those of the settings lead to it."""

from contextlib import AsyncExitStack

import pytest

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import HOST, Node
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from tests.service.kafka.test_membership import Member
from tests.support.local_cluster import LocalCluster
from tests.support.stage import session_ms, settings_for, until
from tests.support.steady import KEEPS_LEADERS
from tests.support.wire import Wire, detour

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def addresses():
    """Two addresses of one broker. It names to a client the address that the client has come by."""
    before, after, controller = free_ports(3)
    public = f"PLAINTEXT://{HOST}:{before},AFTER://{HOST}:{after}"
    properties = {
        "listeners": f"{public},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": public,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,AFTER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with LocalCluster(1, nodes=[Node(1, before, controller)], properties=properties | KEEPS_LEADERS):
        yield (HOST, before), (HOST, after)


@pytest.mark.whole
async def test_a_member_finds_brokers_that_have_all_moved(addresses, unique):
    """Without a new start: its client forgets the addresses in the settings once it has been told of the brokers."""
    (before, after), app, topic = addresses, unique("app"), unique("t")
    known = f"{before[0]}:{before[1]}"
    await KafkaCluster(settings_for(known)).create_topics([NewTopic(topic, 2)])
    given, brokers = Wire(before), Wire(before)
    async with given.listening(), AsyncExitStack() as there:
        await there.enter_async_context(brokers.listening())
        with detour({known: brokers.port}):
            member = Member(f"{HOST}:{given.port}", app, topic, session_timeout_ms=session_ms())
            await until(lambda: member.owns == {0, 1}, "a member")
            given.target, generation = after, member.membership.generation
            await there.aclose()
            member.membership.rejoin()
            again = "a member again"  # it has its generation before its share
            await until(lambda: member.membership.generation > generation and member.owns == {0, 1}, again)
            await member.membership.leave()
            await member.crash()
