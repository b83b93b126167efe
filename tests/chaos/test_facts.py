"""Tests that the cluster answers what it is asked, in Kafka's own words."""

from functools import partial

import pytest
from confluent_kafka import KafkaException

from snapreplay.devbroker.free_ports import free_ports
from tests.chaos.facts import Facts, java_hash
from tests.support import apps
from tests.support.reassign import Refused, reassign
from tests.support.stage import Stage


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("hello", 99_162_322), ("polygenelubricants", 0), ("Aa", 2112), ("BB", 2112)]
)
def test_hashes_are_those_of_java(text, code):
    """ "polygenelubricants" is known to hash to the least of all ints, which without its sign bit is 0."""
    assert java_hash(text) == code


@pytest.mark.kafka
async def test_a_real_broker_takes_and_refuses_reassignments(unique, broker):
    """The same replicas are fine; a broker that does not exist is an error with its code, not silence."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("reassign")), 2).prepare()
    topic = f"{here.app.app_id}-increments"
    facts = Facts(broker.bootstrap_servers, here.app.app_id)
    replicas = facts.replicas(topic)
    ask = partial(reassign, broker.bootstrap_servers, topic)
    ask({n: r for n, (_, r) in enumerate(replicas)})
    with pytest.raises(Refused, match=f"{topic}: error 39"):
        ask({1: [4711]})
    assert facts.replicas(topic) == replicas
    assert facts.in_sync([topic])


@pytest.mark.kafka
async def test_leaders_ends_and_coordinators_are_those_of_the_broker(unique, broker):
    """Of a log with a genesis, which is a claim and an increment in a transaction each."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("facts")), 2).prepare()
    facts = Facts(broker.bootstrap_servers, here.app.app_id)
    topic = f"{here.app.app_id}-increments"
    await here.decided()
    (node,) = {leader for leader, _ in facts.replicas(topic)}
    assert facts.leader(topic, 1) == facts.coordinator(1) == node
    assert facts.ends(topic, 2, committed=True) == facts.ends(topic, 2, committed=False) == [4, 4]


def test_no_broker_is_an_error_in_bounded_time(monkeypatch):
    """Who asks decides how often to ask again."""
    monkeypatch.setattr("tests.chaos.facts.ANSWER_S", 0.3)
    with pytest.raises(KafkaException):
        Facts(f"127.0.0.1:{free_ports(1)[0]}", "nobody").leader("nothing", 0)
