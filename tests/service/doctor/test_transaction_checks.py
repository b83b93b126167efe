"""Findings about open transactions: whose, since when, and what ends them."""

import pytest

from snapreplay.service.core.inspected import EndingTransaction, OpenTransaction
from snapreplay.service.doctor.facts import Log
from snapreplay.service.doctor.transaction_checks import pinned, stuck
from snapreplay.service.ports import TopicPartition
from tests.support.healthy import NOW_MS, facts, only


def held(topic, opened):
    """Facts with one partition that is held back from 40 to 100."""
    return facts(logs=(Log(TopicPartition(topic, 1), 0, 40, 100, opened),))


def opened(transactional_id, seconds_ago):
    """A transaction that may last a minute."""
    return OpenTransaction(9, 0, 40, transactional_id, NOW_MS - 1000 * seconds_ago, 60_000)


def test_a_foreign_transaction_in_our_topics():
    """At once: it hides our claims and increments. Both offsets, the id, since when, and what to do."""
    finding = only(pinned, held("x-increments", opened("other", 2)))
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
    assert bool(list(pinned(held(topic, opened(transactional_id, seconds_ago))))) == wrong


def test_a_hanging_transaction_is_to_be_aborted():
    """No coordinator knows it, it never ends by itself: the exact command."""
    finding = only(pinned, held("payments-x", OpenTransaction(9, 3, 40)))
    assert "producer id 9, epoch 3" in finding.problem
    assert finding.remedy == (
        "kafka-transactions.sh --bootstrap-server k1:9092,k2:9092 abort --topic payments-x --partition 1"
        " --start-offset 40"
    )


def test_what_is_not_held_back_is_well():
    """Also when a transaction was seen that ended meanwhile."""
    done = Log(TopicPartition("x-increments", 1), 0, 100, 100, opened("other", 2))
    assert not list(pinned(facts(logs=(done,))))


def test_a_transaction_that_the_coordinator_cannot_end_is_named():
    """Of each partition once; with the way out that the partition's own error has."""
    endings = {number: EndingTransaction("PrepareAbort", 7, NOW_MS) for number in (1, 0)}
    finding = only(stuck, facts(stuck=endings))
    assert finding.where == "partitions 0, 1"
    assert "the last transaction of x-0 (PrepareAbort, epoch 7)" in finding.problem
    assert "--state-of x --from positions" in finding.remedy
