"""Findings about brokers, permissions, transactions and this installation: each for its reason, and only then."""

import re
from dataclasses import replace

import pytest

from snapreplay.service.core.inspected import Broker, EndingTransaction, OpenTransaction, Replicas, WriteProbe
from snapreplay.service.doctor import cluster_checks as checks
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Log, Machine
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
        (checks.timeout_limits, SHORT, "timeouts.transaction_ms", "30000.*=20000"),
        (checks.timeout_limits, EXPIRING, "brokers", "60000"),
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


# ---- permissions

BY_PREFIX = "--transactional-id x --resource-pattern-type prefixed"


@pytest.mark.parametrize(
    ("what", "acl"),
    [
        ("idempotent writes", "IdempotentWrite --cluster"),
        ("x-increments", "Write --topic x-increments"),
        ("balances-x", "Write --topic balances-x"),
        ("x-doctor", f"Write {BY_PREFIX}"),
    ],
)
def test_what_may_not_be_written(what, acl):
    """Each with the ACL that allows it; without an app nothing is tried."""
    finding = only(checks.writes, facts(probe=WriteProbe({what: "AuthorizationFailed"})))
    assert (finding.where, finding.problem) == (what, "this user may not write: AuthorizationFailed")
    assert f"--operation {acl}" in finding.remedy
    assert not list(checks.writes(facts(probe=None)))


@pytest.mark.parametrize(
    ("refused", "where", "acl"),
    [
        ({"x": "Denied"}, "group x", "Read --group x"),
        ({f"x-{number}": "Denied" for number in range(5)}, "x-0, x-1, x-2 and 2 more", BY_PREFIX),
    ],
)
def test_what_no_partition_could_be_had_with(refused, where, acl):
    """A group that may not be joined; transactional ids, which are one finding however many partitions there are."""
    finding = only(checks.identities, facts(refused=refused))
    assert (finding.where, "Denied" in finding.problem) == (where, True)
    assert acl in finding.remedy


# ---- open transactions: whose, since when, and what ends them


def held(topic, opened):
    """Facts with one partition that is held back from 40 to 100."""
    return facts(logs=(Log(TopicPartition(topic, 1), 0, 40, 100, opened),))


def opened(transactional_id, seconds_ago):
    """A transaction that may last a minute."""
    return OpenTransaction(9, 0, 40, transactional_id, NOW_MS - 1000 * seconds_ago, 60_000)


def test_a_foreign_transaction_in_our_topics():
    """At once: it hides our claims and increments. Both offsets, the id, since when, and what to do."""
    finding = only(checks.pinned, held("x-increments", opened("other", 2)))
    assert finding.where == "x-increments-1"
    for text in ("last stable offset 40", "high watermark 100", "60 offsets", "'other'", "2 s of"):
        assert text in finding.problem
    assert "describe --transactional-id other" in finding.remedy


@pytest.mark.parametrize(
    ("topic", "transactional_id", "seconds_ago", "wrong"),
    [
        ("x-increments", "x-1", 2, False),  # the owner at work
        ("x-increments", "x-1", 31, True),  # longer than we let one last
        ("x-increments", "x-0", 2, True),  # of another partition
        ("payments-x", "upstream", 2, False),  # an upstream program at work
        ("payments-x", "upstream", 61, True),  # it makes us wait
        ("balances-x", "x-1", 2, False),
    ],
)
def test_how_long_whose_transaction_may_be_open(topic, transactional_id, seconds_ago, wrong):
    """Ours as long as the settings say, others in inputs and outputs for a minute, in our own topics not at all."""
    assert bool(list(checks.pinned(held(topic, opened(transactional_id, seconds_ago))))) == wrong


def test_a_hanging_transaction_is_to_be_aborted():
    """No coordinator knows it, it never ends by itself: the exact command."""
    finding = only(checks.pinned, held("payments-x", OpenTransaction(9, 3, 40)))
    assert "producer id 9, epoch 3" in finding.problem
    assert finding.remedy == (
        "kafka-transactions.sh --bootstrap-server k1:9092,k2:9092 abort --topic payments-x --partition 1"
        " --start-offset 40"
    )


def test_what_is_not_held_back_is_well():
    """Also when a transaction was seen that ended meanwhile."""
    done = Log(TopicPartition("x-increments", 1), 0, 100, 100, opened("other", 2))
    assert not list(checks.pinned(facts(logs=(done,))))


def test_a_transaction_that_the_coordinator_cannot_end_is_named():
    """Of each partition once; with the way out that the partition's own error has."""
    endings = {number: EndingTransaction("PrepareAbort", 7, NOW_MS) for number in (1, 0)}
    finding = only(checks.stuck, facts(stuck=endings))
    assert finding.where == "partitions 0, 1"
    assert "the last transaction of x-0 (PrepareAbort, epoch 7)" in finding.problem
    assert "--state-of x --from positions" in finding.remedy
