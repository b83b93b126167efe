"""Findings of each check: each appears for its reason, with what repairs it, and only then."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.service.core.inspected import Broker, EndingTransaction, OpenTransaction, Replicas, WriteProbe
from snapreplay.service.core.peers import Peer, declared
from snapreplay.service.doctor import checks
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Log, StateSeen
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Paused
from tests.support.healthy import HOUR_MS, NOW_MS, STATE, WEEK_MS, facts, only, topic, with_topic, without_topic

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
        (checks.versions, with_broker(OLD), "broker 3 at k3:9092", "Produce, EndTxn"),
        (checks.versions, with_broker(NEWER), "cluster", "rolling upgrade"),
        (checks.timeout_limits, SHORT, "timeouts.transaction_ms", "30000.*=20000"),
        (checks.timeout_limits, EXPIRING, "brokers", "60000"),
        (checks.accidental_topics, CREATING, "brokers", "deleted"),
    ],
)
def test_what_is_the_matter_is_named_with_what_to_do(check, seen, where, said):
    """No quorum when one is away; an address that clients go to and nobody reaches; requests that are not understood;
    an unfinished upgrade; producers that could not start, or expire; topics by accident."""
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
    assert "--allow-principal User:ANONYMOUS " in finding.remedy
    assert acl in finding.remedy


def test_two_programs_under_one_app_id():
    """Both are named, with what differs, also if only one part does; a program that does not run only if most does."""
    seen = facts()
    assert seen.app
    mine = declared(seen.app)
    _, handlers, modules = mine.split("-")

    def found(*declares):
        peers = tuple(Peer(f"p{n}", "", f"host-{n}", "", declares=each) for n, each in enumerate(declares))
        return [each.problem for each in checks.programs(replace(seen, peers=peers))]

    (one,) = found(mine, f"0000-{handlers}-{modules}", mine)
    assert one.startswith("process p0 on host-0 and process p2 on host-2 run another program than process p1 on host-1")
    assert "they differ in their outputs." in one
    (two,) = found(f"0000-0000-{modules}")
    assert "MODULE:APP, which is examined here," in two
    assert "outputs and handlers." in two
    for healthy in ((), (mine, mine), ("", mine), (f"0000-{handlers}-{modules}",)):
        assert found(*healthy) == []


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


GONE = replace(STATE, missing="input gone")
UNUSABLE = replace(STATE, unusable="snapshot 5c1d cannot be used: crc")
TRIGGER = "`snapreplay trigger-snapshot --partition 0 --wait`"
LEAN = {"changelog": {"enabled": False}}


@pytest.mark.parametrize(
    ("state", "said", "remedy"),
    [
        (StateSeen(0, None), "not even the genesis", "`snapreplay init MODULE:APP`"),
        (GONE, "input gone", "`snapreplay run MODULE:APP`: its hint"),
        (UNUSABLE, "crc", "run MODULE:APP`, then `snapreplay trig"),
    ],
)
def test_partitions_that_could_not_be_recovered(state, said, remedy):
    """Without an owner nobody takes a trigger: what starts one is recommended."""
    finding = only(checks.recoverable, facts(states=(state,)))
    assert finding.where == "partition 0"
    assert said in finding.problem
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (replace(STATE, missing="no snapshot"), f"{TRIGGER} while"),
        (replace(GONE, snapshot_helps=False), "`snapreplay restore-status`"),
        (UNUSABLE, TRIGGER),
    ],
)
def test_a_trigger_is_recommended_where_somebody_takes_it(state, remedy):
    """While the owner lives a snapshot helps, and a crash first would be too late; it does not bring an input back."""
    owned = facts(states=(state,), owned=frozenset({0}))
    assert only(checks.recoverable, owned).remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("name", "members", "remedy"),
    [
        ("x-increments", 1, "do not stop any process of the app"),
        ("x-snapshots", 0, "`snapreplay run MODULE:APP`, whose hint"),
        ("payments-x", 1, "if it holds the same records at the same offsets, do nothing"),
    ],
)
def test_a_topic_that_was_made_again(name, members, remedy):
    """Both ids and the partitions are named. Where the topic is missing, or has no id, that is another matter."""
    states = tuple(replace(each, topic_ids={name: "before"}) for each in facts().states)
    seen = replace(with_topic(name, topic_id="now"), states=states, members=members)
    finding = only(checks.same_topics, seen)
    assert finding.where == name
    assert "partitions 0, 1 recorded id before, the topic now has id now" in finding.problem
    assert remedy in finding.remedy
    for other in (replace(without_topic(name), states=states), facts(states=states)):
        assert not list(checks.same_topics(other))


def test_b4_a_snapshot_older_than_half_of_what_the_input_retains():
    """Only where replay is the only mode: what came after the snapshot will be deleted. An input that keeps everything,
    or is compacted alone, has no age."""
    old = replace(STATE, snapshot_at_ms=NOW_MS - WEEK_MS // 2 - HOUR_MS)
    finding = only(checks.snapshot_age, facts(states=(old,), settings=LEAN))
    assert "3.5 days old" in finding.problem
    assert not list(checks.snapshot_age(facts(states=(old,))))
    assert not list(checks.snapshot_age(facts(settings=LEAN)))
    for config in ({"retention.ms": "-1"}, {"cleanup.policy": "compact"}):
        topics = {**facts().topics, "payments-x": topic("payments-x", **config)}
        assert not list(checks.snapshot_age(facts(states=(old,), topics=topics, settings=LEAN)))


def test_b16_records_older_than_a_topic_keeps_them():
    """By Kafka's clock they are due at once: unread in the input, and in an output that is given their time. Not where
    the topic takes its own time, nor where no record was seen."""
    old = replace(STATE, timestamps_ms={"payments-x": NOW_MS - 2 * WEEK_MS})
    found = list(checks.record_times(facts(states=(old,))))
    assert [finding.where for finding in found] == ["payments-x", "balances-x"]
    assert "deleted before they are read" in found[0].problem
    assert "outputs have the times of their records" in found[1].problem
    assert "retention.ms=-1" in found[1].remedy
    own = {name: topic(name, **{"message.timestamp.type": "LogAppendTime"}) for name in facts().topics}
    empty = replace(STATE, timestamps_ms={})
    for seen in (facts(), facts(states=(old,), topics=own), facts(states=(empty,))):
        assert not list(checks.record_times(seen))


def test_copies_in_another_cluster_are_named_by_the_cluster():
    """Not as topics that were created again: every id is another one there."""
    states = tuple(replace(each, topic_ids={"x-increments": "before"}, cluster_id="old") for each in facts().states)
    seen = replace(with_topic("x-increments", topic_id="now"), states=states, cluster_id="new")
    finding = only(checks.same_cluster, seen)
    assert finding.where == "partitions 0, 1"
    assert "began in cluster old, but this is cluster new" in finding.problem
    assert not list(checks.same_topics(seen))
    assert not list(checks.same_cluster(replace(seen, cluster_id="old")))


def test_a_pause_that_somebody_may_have_forgotten():
    """It is in the log, so it is found while no process runs."""
    finding = only(checks.paused, facts(states=(replace(STATE, paused=Paused(1_000, "repairs")), replace(STATE))))
    assert finding.problem.startswith("paused since 1970-01-01 00:00:01 UTC: repairs")
    assert "`snapreplay resume --partition 0 --wait`" in finding.remedy
