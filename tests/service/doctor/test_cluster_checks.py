"""Findings about brokers, transactions and this installation: each appears for its reason, and only then."""

from dataclasses import replace

import pytest

from snapreplay.service.core.inspected import Broker, Replicas, WriteProbe
from snapreplay.service.doctor import cluster_checks as checks
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Machine
from snapreplay.service.ports import TopicPartition
from tests.support.healthy import NOW_MS, SNAPSHOT, facts, only, with_topic

BROKERS = facts().brokers


def test_too_few_brokers():
    """Two are no quorum when one is away."""
    finding = only(checks.brokers, facts(brokers=BROKERS[:2]))
    assert "2 brokers" in finding.problem


def test_an_advertised_broker_that_nobody_reaches():
    """Named with its address: clients go there."""
    lost = Broker(3, "k3:9092", reachable=False)
    finding = only(checks.brokers, facts(brokers=(*BROKERS[:2], lost)))
    assert finding.where == "broker 3 at k3:9092"
    assert "advertised.listeners" in finding.remedy


def test_a_broker_that_does_not_understand_us():
    """The requests are named."""
    old = replace(BROKERS[2], missing=("Produce", "EndTxn"))
    finding = only(checks.brokers, facts(brokers=(*BROKERS[:2], old)))
    assert "Produce, EndTxn" in finding.problem


def test_brokers_of_different_releases():
    """An upgrade that was not finished."""
    newer = replace(BROKERS[2], apis={0: (3, 12)})
    assert "rolling upgrade" in only(checks.brokers, facts(brokers=(*BROKERS[:2], newer))).remedy


def test_transactions_longer_than_the_brokers_allow():
    """No producer could start: both values."""
    seen = facts(broker_config={"transaction.max.timeout.ms": "20000"})
    finding = only(checks.transaction_limits, seen)
    assert "30000" in finding.problem
    assert "timeouts.transaction_ms=20000" in finding.remedy


def test_transactional_ids_that_expire_at_once():
    """A quiet partition would recover at its next record."""
    seen = facts(broker_config={"transactional.id.expiration.ms": "60000"})
    assert "60000" in only(checks.transaction_limits, seen).problem


def test_topics_that_are_created_by_accident():
    """Not by us; a broker that does not say so is no finding."""
    seen = facts(broker_config={"auto.create.topics.enable": "true"})
    assert "deleted" in only(checks.accidental_topics, seen).problem
    allowed = {"auto.create.topics.enable": "false"}
    assert not list(checks.accidental_topics(facts(broker_config=allowed)))


@pytest.mark.parametrize(("coordinator_ms", "said"), [(3000, "ahead of"), (-3000, "behind")])
def test_clocks_that_differ(coordinator_ms, said):
    """Only what the time between question and answer does not explain."""
    seen = WriteProbe({}, NOW_MS, NOW_MS + 100, NOW_MS + coordinator_ms)
    finding = only(checks.clock, facts(probe=seen))
    assert said in finding.problem
    assert ("2900" if coordinator_ms > 0 else "3000") in finding.problem


def test_without_a_probe_nothing_is_said_about_clocks():
    """What was not seen is no finding."""
    assert not list(checks.clock(facts(probe=None)))
    assert not list(checks.clock(facts(probe=WriteProbe({"x": "no"}))))


def test_a_client_without_its_c_extension():
    """Twenty times slower, and nothing else would say so."""
    assert "slower" in only(checks.client, facts(machine=Machine(c_extension=False))).problem


def test_codecs_that_are_not_installed():
    """Named."""
    seen = facts(machine=Machine(missing_codecs=("lz4", "zstd")))
    assert "lz4, zstd" in only(checks.client, seen).problem


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
