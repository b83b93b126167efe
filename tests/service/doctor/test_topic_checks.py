"""Findings about topics: each appears for its reason, with the command that repairs it, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.service.core.inspected import Replicas
from snapreplay.service.doctor import topic_checks as checks
from snapreplay.service.ports import TopicPartition
from tests.support.healthy import STATE, facts, only, topic, with_topic, without_topic


@pytest.mark.parametrize("name", ["payments-x", "balances-x"])
def test_a_missing_input_or_output(name):
    """With the command that makes it."""
    finding = only(checks.existence, without_topic(name))
    assert finding.where == name
    assert finding.remedy == "`snapreplay topics ensure MODULE:APP --partitions N`"


def test_missing_topics_of_our_own():
    """Both: a new app. One of the two: state was lost, and an empty one is made on purpose only."""
    both = list(checks.existence(without_topic("x-increments", "x-snapshots")))
    assert ["topics ensure" in finding.remedy for finding in both] == [True, True]
    one = only(checks.existence, without_topic("x-snapshots"))
    assert "state was lost" in one.problem
    assert one.remedy.startswith("bring the topic back")
    assert "`snapreplay topics ensure MODULE:APP --replace-lost`" in one.remedy


@pytest.mark.parametrize("names", [("x-increments",), ("x-snapshots", "x-increments")])
def test_own_topics_that_are_missing_while_the_app_runs(names):
    """Whoever has the state in memory writes it once more: it must not be stopped, and nothing be initialised."""
    seen = replace(without_topic(*names), members=2)
    for finding in checks.existence(seen):
        assert "the group has 2 processes of the app" in finding.problem
        assert finding.remedy.startswith("`snapreplay topics ensure MODULE:APP`: they then write")
        assert "init" not in finding.remedy
    assert len(list(checks.existence(seen))) == len(names)


def test_partition_counts_that_differ():
    """All counts are named."""
    finding = only(checks.partition_counts, with_topic("payments-x", partition_count=3))
    assert "payments-x has 3" in finding.problem
    assert "x-increments has 2" in finding.problem


def matching_too(**changed):
    """The app has a pattern, too, which a topic of three partitions matches."""
    app: App[Any] = App("x", inputs=[Topic("payments-x"), Topic.matching("more-.*")], state=lambda: MapState(str, int))
    seen = facts(**changed)
    return replace(seen, app=app, topics={**seen.topics, "more-1": topic("more-1", partition_count=3)})


def test_a_topic_of_a_pattern_with_another_partition_count_moves_no_key():
    """It is left alone, and says so itself. Once it is an input, its keys have moved."""
    (finding,) = checks.patterns(matching_too())
    assert finding.where == "more-1"
    assert "it has 3 partitions and the other inputs have 2: it is not read" in finding.problem
    assert "copy its records to a topic with 2 partitions" in finding.remedy
    assert not list(checks.partition_counts(matching_too()))
    taken_in = matching_too(states=(replace(STATE, topic_ids={"more-1": "id"}),))
    assert not list(checks.patterns(taken_in))
    assert "keys have moved" in next(checks.partition_counts(taken_in)).remedy


def test_an_own_topic_that_grew_moves_no_key():
    """The inputs are as they were."""
    finding = only(checks.partition_counts, with_topic("x-increments", partition_count=3))
    assert "no key has moved" in finding.remedy
    assert "keys have moved" not in finding.remedy


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [("cleanup.policy", "compact", "delete"), ("retention.ms", "86400000", "-1"), ("retention.bytes", "1000", "-1")],
)
def test_own_topics_that_kafka_would_empty(setting, value, wanted):
    """The exact command."""
    finding = only(checks.kept_for_ever, with_topic("x-increments", **{setting: value}))
    assert finding.remedy == (
        "`kafka-configs.sh --bootstrap-server k1:9092,k2:9092 --alter --topic x-increments"
        f" --add-config {setting}={wanted}`"
    )


def test_a_compacted_input_of_an_app_that_replays():
    """With changes in the log it may be compacted."""
    compacted = {"payments-x": topic("payments-x", **{"cleanup.policy": "compact"})}
    seen = facts(topics={**facts().topics, **compacted})
    assert not list(checks.replayable(seen))
    replaying = facts(topics=seen.topics, settings={"changelog": {"enabled": False}})
    assert "cleanup.policy=compact" in only(checks.replayable, replaying).problem


@pytest.mark.parametrize("name", ["payments-x", "balances-x", "x-increments", "x-snapshots"])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"replication_factor": 2}, "replication factor 2 with 3 brokers"),
        ({"min.insync.replicas": "1"}, "acknowledged with one copy"),
        ({"min.insync.replicas": "3"}, "without one broker every write fails"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable"),
    ],
)
def test_topics_that_can_lose_what_was_committed(name, changed, said):
    """Every topic of the app counts, inputs and outputs too."""
    found = [f for f in checks.durability(with_topic(name, **changed)) if said in f.problem]
    assert [finding.where for finding in found] == [name]
    assert not list(checks.durability(facts()))


def test_one_broker_can_hold_one_copy():
    """What one broker cannot do is said once, about the cluster."""
    alone = {t.name: topic(t.name, replication_factor=1) for t in facts().topics.values()}
    few = {"replication_factor": 1, "min.insync.replicas": "1"}
    ones = {name: topic(name, **few) for name in alone}
    assert not list(checks.durability(facts(topics=ones, brokers=facts().brokers[:1])))
    refused = facts(topics=alone, brokers=facts().brokers[:1])
    assert all("refuse every write" in f.problem for f in checks.durability(refused))


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (Replicas(-1, (1, 2, 3), ()), "no leader"),
        (Replicas(1, (1, 2, 3), (1,)), "only 1 replica in sync, but min.insync.replicas=2"),
        (Replicas(1, (1, 2, 3), (1, 3)), "replicas [2] are not in sync"),
    ],
)
def test_partitions_that_are_not_well(replicas, said):
    """Partition, nodes and the command that shows more."""
    sick = {**facts().replicas, TopicPartition("payments-x", 1): replicas}
    finding = only(checks.replicas, facts(replicas=sick))
    assert finding.where == "payments-x-1"
    assert said in finding.problem


def test_records_that_do_not_fit():
    """Our topics must take our records, chunks may be larger than usual; dead letters are as large as the inputs'."""
    small = with_topic("x-snapshots", **{"max.message.bytes": "500000"})
    assert "max.message.bytes=500000" in only(checks.record_sizes, small).problem
    settings = {"errors": {"policy": "dead_letter"}}
    topics = {**facts().topics, "x-dead-letters": topic("x-dead-letters")}
    assert not list(checks.record_sizes(facts(topics=topics, settings=settings)))
    topics["payments-x"] = topic("payments-x", **{"max.message.bytes": "8000000"})
    finding = only(checks.record_sizes, facts(topics=topics, settings=settings))
    assert "max.message.bytes=8000000" in finding.remedy


def test_without_an_app_there_are_no_topics_to_miss():
    """Only the cluster is looked at."""
    seen = replace(facts(), app=None, topics={}, replicas={})
    for check in (checks.existence, checks.partition_counts, checks.durability, checks.replicas):
        assert not list(check(seen))
