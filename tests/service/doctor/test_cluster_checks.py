"""Findings about brokers, transactions and this installation: each appears for its reason, and only then."""

import re
from dataclasses import replace

import pytest

from snapreplay.service.core.inspected import Broker, Replicas, WriteProbe
from snapreplay.service.doctor import cluster_checks as checks
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Machine
from snapreplay.service.ports import TopicPartition
from tests.support.healthy import NOW_MS, SNAPSHOT, facts, only, with_topic

BROKERS = facts().brokers


def broker_config(name, value):
    return facts(broker_config={name: value})


def with_broker(third):
    return facts(brokers=(*BROKERS[:2], third))


LOST = Broker(3, "k3:9092", reachable=False)
OLD = replace(BROKERS[2], missing=("Produce", "EndTxn"))
NEWER = replace(BROKERS[2], apis={0: (3, 12)})
SHORT = broker_config("transaction.max.timeout.ms", "20000")
EXPIRING = broker_config("transactional.id.expiration.ms", "60000")
CREATING = broker_config("auto.create.topics.enable", "true")


@pytest.mark.parametrize(
    ("check", "seen", "where", "said"),
    [
        (checks.brokers, facts(brokers=BROKERS[:2]), "cluster", "2 brokers"),
        (checks.brokers, with_broker(LOST), "broker 3 at k3:9092", "advertised.listeners"),
        (checks.brokers, with_broker(OLD), "broker 3 at k3:9092", "Produce, EndTxn"),
        (checks.brokers, with_broker(NEWER), "cluster", "rolling upgrade"),
        (checks.transaction_limits, SHORT, "timeouts.transaction_ms", "30000.*=20000"),
        (checks.transaction_limits, EXPIRING, "brokers", "60000"),
        (checks.accidental_topics, CREATING, "brokers", "deleted"),
        (checks.client, facts(machine=Machine(c_extension=False)), "aiokafka", "slower"),
        (checks.client, facts(machine=Machine(missing_codecs=("lz4",))), "cramjam", "lz4"),
    ],
)
def test_what_is_the_matter_is_named_with_what_to_do(check, seen, where, said):
    """No quorum when one is away; an address that clients go to and nobody reaches; requests that are not understood;
    an unfinished upgrade; producers that could not start, or expire; topics by accident; a slow or deaf client."""
    finding = only(check, seen)
    assert finding.where == where
    assert re.search(said, f"{finding.problem} {finding.remedy}")


@pytest.mark.parametrize(("coordinator_ms", "said"), [(3000, "ahead of"), (-3000, "behind")])
def test_clocks_that_differ(coordinator_ms, said):
    """Only what the time between question and answer does not explain."""
    seen = WriteProbe({}, NOW_MS, NOW_MS + 100, NOW_MS + coordinator_ms)
    finding = only(checks.clock, facts(probe=seen))
    assert said in finding.problem
    assert ("2900" if coordinator_ms > 0 else "3000") in finding.problem


def test_what_was_not_seen_is_no_finding():
    """A probe; and what a broker says that creates no topics."""
    assert not list(checks.accidental_topics(broker_config("auto.create.topics.enable", "false")))
    assert not list(checks.clock(facts(probe=None)))
    assert not list(checks.clock(facts(probe=WriteProbe({"x": "no"}))))


def test_less_memory_than_the_state_needs():
    """Sizes of all partitions against what is free; unknown is no finding."""
    needed = 2 * (SNAPSHOT.raw_bytes + checks.ENTRY_OVERHEAD_BYTES * SNAPSHOT.entries)
    seen = facts(machine=Machine(available_bytes=needed - 1))
    assert "2 partitions" in only(checks.memory, seen).problem
    assert not list(checks.memory(facts(machine=Machine(available_bytes=needed))))
    assert not list(checks.memory(facts(machine=Machine())))


def test_a_transaction_log_with_one_copy():
    """On three brokers it must have three; on one broker one is all there can be."""
    places = {TopicPartition(TRANSACTION_TOPIC, n): Replicas(2, (2,), (2,)) for n in (0, 2)}
    seen = replace(with_topic(TRANSACTION_TOPIC, replication_factor=1), replicas=places)
    remedy = only(checks.transaction_log, seen).remedy
    assert (
        '[{"topic":"__transaction_state","partition":0,"replicas":[2,1,3]},'
        '{"topic":"__transaction_state","partition":2,"replicas":[2,3,1]}]' in remedy
    )
    assert not list(checks.transaction_log(replace(seen, brokers=BROKERS[:1])))
