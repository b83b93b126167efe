"""What the cluster is asked is what it answers, in Kafka's own words."""

import pytest
from confluent_kafka import KafkaException

from snapreplay.devbroker.ports import free_ports
from tests.chaos.facts import Facts, java_hash
from tests.chaos.reassign import Refused, reassign, request
from tests.support import apps
from tests.support.stage import Stage


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("hello", 99_162_322), ("polygenelubricants", 0), ("Aa", 2112), ("BB", 2112)],
)
def test_hashes_are_those_of_java(text, code):
    """ "polygenelubricants" is known to hash to the least of all ints, which without its sign bit is 0."""
    assert java_hash(text) == code


def test_a_reassignment_is_framed_as_kafka_documents_it():
    """Byte by byte: header version 2, timeout, topics, partitions, replicas, empty tag sections."""
    expected = (
        b"\0\x2d\0\0\0\0\0\x07\0\x05chaos\0"  # key, version, correlation id, client id, tags
        b"\0\0\x27\x10\x02\x03ab"  # timeout, one topic, its name
        b"\x02\0\0\0\x04\x03\0\0\0\x02\0\0\0\x01\0"  # one partition, two replicas, tags
        b"\0\0"
    )
    assert request("ab", {4: [2, 1]}) == expected


@pytest.mark.kafka
async def test_a_real_broker_takes_and_refuses_reassignments(unique, broker):
    """The same replicas are fine; a broker that does not exist is an error with its code, not silence."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("reassign")), 2).prepare()
    topic = f"{here.app.app_id}-increments"
    facts = Facts(broker.bootstrap_servers, here.app.app_id)
    replicas = facts.replicas(topic)
    reassign(broker.bootstrap_servers, topic, {n: r for n, (_, r) in enumerate(replicas)})
    with pytest.raises(Refused, match=f"{topic}: error 39"):
        reassign(broker.bootstrap_servers, topic, {1: [4711]})
    assert facts.replicas(topic) == replicas
    assert facts.in_sync([topic])


@pytest.mark.kafka
async def test_leaders_ends_and_coordinators_are_those_of_the_broker(unique, broker):
    """Of a log with a genesis, which is a claim and an increment in a transaction each."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("facts")), 2).prepare()
    facts = Facts(broker.bootstrap_servers, here.app.app_id)
    topic = f"{here.app.app_id}-increments"
    (node,) = {leader for leader, _ in facts.replicas(topic)}
    assert facts.leader(topic, 1) == facts.coordinator(1) == node
    assert facts.ends(topic, 2, committed=True) == facts.ends(topic, 2, committed=False) == [4, 4]


def test_no_broker_is_an_error_in_bounded_time(monkeypatch):
    """Who asks decides how often to ask again."""
    monkeypatch.setattr("tests.chaos.facts.ANSWER_S", 0.3)
    with pytest.raises(KafkaException):
        Facts(f"127.0.0.1:{free_ports(1)[0]}", "nobody").leader("nothing", 0)
