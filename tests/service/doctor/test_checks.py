"""Findings of each check: each appears for its reason, with what repairs it, and only then."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from snapreplay import App, MapState, Topic, json, nullable
from snapreplay.service.config.groups import RestoreSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import Broker, EndingTransaction, OpenTransaction, Replicas
from snapreplay.service.doctor import checks
from snapreplay.service.doctor.checks import CHECKS, report_of
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, DoctorFacts, Log, StateSeen
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.requirements import with_broadcast
from snapreplay.snapshots.format.records import Paused
from tests.support import apps
from tests.support.healthy import NOW_MS, STATE, WEEK_MS, facts, only, topic, with_topic, without_topic

BROKERS = facts().brokers
LEAN = {"changelog": {"enabled": False}}
TRIGGER = "`snapreplay trigger-snapshot --partition 0 --wait`"
GONE = replace(STATE, missing="input gone")
UNUSABLE = replace(STATE, unusable="snapshot 5c1d cannot be used: crc")
BY_PREFIX = "--transactional-id x --resource-pattern-type prefixed"


def config(name, value):
    return facts(broker_config={name: value})


def with_broker(third):
    return facts(brokers=(*BROKERS[:2], third))


def replicas(seen):
    return facts(replicas={**facts().replicas, TopicPartition("payments-x", 1): seen})


def state(seen, **changed):
    return facts(states=(seen,), **changed)


def remade(name, **changed):
    states = tuple(replace(each, topic_ids={name: "before"}) for each in facts().states)
    return replace(with_topic(name, topic_id="now"), states=states, **changed)


def held(name, opened):
    """Facts with one partition that is held back from 40 to 100."""
    return facts(logs=(Log(TopicPartition(name, 1), 0, 40, 100, opened),))


def opened(transactional_id, seconds_ago):
    """A transaction that may last a minute."""
    return OpenTransaction(9, 0, 40, transactional_id, NOW_MS - 1000 * seconds_ago, 60_000)


@pytest.mark.parametrize(
    ("check", "seen", "where", "problem", "remedy"),
    [
        (checks.brokers, facts(brokers=BROKERS[:2]), "cluster", "2 brokers", "at least 3"),
        (checks.brokers, with_broker(Broker(3, "k3:9092", reachable=False)),
         "broker 3 at k3:9092", "cannot be reached", r"advertised\.listeners"),
        (checks.brokers, with_broker(replace(BROKERS[2], missing=("Produce", "EndTxn"))),
         "broker 3 at k3:9092", "Produce, EndTxn", "upgrade the broker"),
        (checks.timeout_limits, config("transaction.max.timeout.ms", "20000"),
         "timeouts.transaction_ms", "30000.*=20000", "--set timeouts.transaction_ms=20000"),
        # Whose transaction is open, and what ends it
        (checks.pinned, held("x-increments", opened("other", 2)), "x-increments-1",
         "offset 40, high watermark 100: 60 offsets.*'other'.*2 s of", "describe --transactional-id other"),
        (checks.pinned, held("payments-x", OpenTransaction(9, 3, 40)), "payments-x-1", "producer id 9, epoch 3",
         "^kafka-transactions.sh --bootstrap-server k1:9092,k2:9092 abort --topic payments-x --partition 1"
         " --start-offset 40$"),
        (checks.stuck, facts(stuck={number: EndingTransaction("PrepareAbort", 7, NOW_MS) for number in (1, 0)}),
         "partitions 0, 1", r"the last transaction of x-0 \(PrepareAbort, epoch 7\)", "--state-of x --from positions"),
        # Topics
        *((checks.existence, without_topic(name), name, "does not exist", "topics ensure MODULE:APP --partitions N`$")
          for name in ("payments-x", "balances-x")),
        (checks.existence, without_topic("x-snapshots"), "x-snapshots", "state .* was lost", "--replace-lost`"),
        (checks.existence, replace(without_topic("x-snapshots"), members=2), "x-snapshots",
         "the group has 2 processes of the app", "^`snapreplay topics ensure MODULE:APP`: they then write"),
        (checks.as_at_a_start, with_topic("x-increments", partition_count=3),
         "app x", "x-increments has 3 partitions", "no key has moved"),
        *((checks.as_at_a_start, with_topic("x-increments", **{setting: value}), "app x", f"{setting}={value}",
           "^`kafka-configs.sh --bootstrap-server k1:9092,k2:9092 --alter --topic x-increments"
           f" --add-config {setting}={wanted}`$")
          for setting, value, wanted in (
              ("cleanup.policy", "compact", "delete"),
              ("retention.ms", "86400000", "-1"),
              ("max.message.bytes", "500000", "1048588"))),
        # Replication
        (checks.durability, with_topic(TRANSACTION_TOPIC, replication_factor=2, **{"min.insync.replicas": "1"}),
         TRANSACTION_TOPIC, "factor 2 with 3", "until each partition has 3"),
        *((checks.durability, with_topic(name, **{setting: value}), name, problem, f"{setting}=")
          for name in ("payments-x", "balances-x", "x-increments")
          for setting, value, problem in (
              ("min.insync.replicas", "1", "acknowledged with one copy"),
              ("min.insync.replicas", "3", "without one broker every write fails"),
              ("unclean.leader.election.enable", "true", "committed records are lost"))),
        (checks.replicas, replicas(Replicas(-1, (1, 2, 3), ())), "payments-x-1", "no leader", "start these brokers"),
        (checks.replicas, replicas(Replicas(1, (1, 2, 3), (1, 3))), "payments-x-1", r"replicas \[2\]", "caught up"),
        # State: without an owner no process takes a trigger, with one a crash first would be too late
        (checks.recoverable, state(StateSeen(0, None)), "partition 0", "not even the genesis", "init MODULE:APP`"),
        (checks.recoverable, state(GONE), "partition 0", "input gone", "`snapreplay run MODULE:APP`: its hint"),
        (checks.recoverable, state(UNUSABLE), "partition 0", "crc", f"run MODULE:APP`, then {TRIGGER}"),
        (checks.recoverable, state(GONE, owned={0}), "partition 0", "input gone", f"^{TRIGGER} while"),
        (checks.recoverable, state(replace(GONE, snapshot_helps=False), owned={0}),
         "partition 0", "input gone", "^`snapreplay restore-status`"),
        (checks.recoverable, state(UNUSABLE, owned={0}), "partition 0", "crc", f"^{TRIGGER}$"),
        (checks.paused, state(replace(STATE, paused=Paused(1_000, "repairs"))), "partition 0",
         "^paused since 1970-01-01T00:00:01Z: repairs", "`snapreplay resume --partition 0 --wait`"),
        *((checks.same_topics, remade(name, members=members), name,
           "partitions 0, 1 recorded id before, the topic now has id now", remedy)
          for name, members, remedy in (
              ("x-increments", 1, "do not stop any process of the app"),
              ("x-snapshots", 0, "`snapreplay run MODULE:APP`, whose hint"),
              ("payments-x", 1, "if it holds the same records at the same offsets, do nothing"))),
        (checks.same_cluster,
         facts(states=tuple(replace(each, cluster_id="old") for each in facts().states), cluster_id="new"),
         "partitions 0, 1", "began in cluster old, but this is cluster new",
         "whose hint says what a copy can be used for"),
    ],
)  # fmt: skip
def test_a_finding_names_the_place_the_values_and_the_remedy(check, seen, where, problem, remedy):
    """And a healthy cluster has none."""
    finding = only(check, seen)
    assert finding.where == where
    assert re.search(problem, finding.problem)
    assert re.search(remedy, finding.remedy)


OLD = replace(STATE, timestamps_ms={"payments-x": NOW_MS - 2 * WEEK_MS})
APPENDED = {name: topic(name, **{"message.timestamp.type": "LogAppendTime"}) for name in facts().topics}
FEW = {name: topic(name, replication_factor=1, **{"min.insync.replicas": "1"}) for name in facts().topics}


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        pytest.param(
            checks.pinned,
            facts(logs=(Log(TopicPartition("x-increments", 1), 0, 100, 100, opened("other", 2)),)),
            id="a transaction that ended meanwhile",
        ),
        pytest.param(checks.same_topics, replace(without_topic("x-snapshots"), states=remade("x-snapshots").states)),
        pytest.param(
            checks.same_topics,
            replace(remade("x-increments"), states=(replace(STATE, cluster_id="old"),), cluster_id="new"),
            id="in another cluster each id is another one",
        ),
        pytest.param(checks.record_times, state(OLD, topics=APPENDED), id="the topic takes its own time"),
        pytest.param(checks.record_times, state(replace(STATE, timestamps_ms={})), id="no record was seen"),
        pytest.param(checks.durability, facts(topics=FEW, brokers=BROKERS[:1]), id="one broker can hold one copy"),
        *(
            pytest.param(check, replace(facts(), app=None, topics={}, replicas={}), id="without an app")
            for check in CHECKS
        ),
    ],
)
def test_no_finding_where_nothing_is_wrong(check, seen):
    """What looks like a finding, and is none."""
    assert not list(check(seen))


@pytest.mark.parametrize(
    ("what", "where", "acl"),
    [
        ("idempotent writes", "idempotent writes", "IdempotentWrite --cluster"),
        ("x-increments", "x-increments", "Write --topic x-increments"),
        ("balances-x", "balances-x", "Write --topic balances-x"),
        ("x-doctor", "x-doctor", f"Write {BY_PREFIX}"),
        ("x", "group x", "Read --group x"),
        ("x-0", "x-0", f"Write {BY_PREFIX}"),
    ],
)
def test_a_refusal_is_named_with_its_acl(what, where, acl):
    """And with the user; the partitions' ids are one finding however many partitions there are."""
    finding = only(checks.access, facts(refused={what: "Denied"}))
    assert (finding.where, finding.problem) == (where, "this user is refused: Denied")
    assert finding.remedy.endswith(f"--allow-principal User:ANONYMOUS --operation {acl}")
    many = only(checks.access, facts(refused={f"x-{number}": "Denied" for number in range(5)}))
    assert many.where == "x-0 and 4 more"


@pytest.mark.parametrize(
    ("name", "transactional_id", "seconds_ago", "wrong"),
    [
        ("x-increments", "x-1", 2, False),  # the owner at work
        ("x-increments", "x-1", 31, True),  # longer than we let one last
        ("x-increments", "x-0", 2, True),  # of another partition
        ("payments-x", "upstream", 2, False),  # an upstream program at work
        ("payments-x", "upstream", 61, True),  # it makes us wait
    ],
)
def test_how_long_whose_transaction_may_be_open(name, transactional_id, seconds_ago, wrong):
    """Ours as long as the settings say, others in inputs and outputs for a minute, in our own topics not at all."""
    assert bool(list(checks.pinned(held(name, opened(transactional_id, seconds_ago))))) == wrong


def test_a_new_app_has_neither_of_its_topics():
    """Both are created and the app is initialised; while processes run they write them, and nothing is initialised."""
    seen = without_topic("x-increments", "x-snapshots")
    assert ["`snapreplay init MODULE:APP`" in each.remedy for each in checks.existence(seen)] == [True, True]
    running = list(checks.existence(replace(seen, members=2)))
    assert ["init" in each.remedy for each in running] == [False, False]


def matching_too(**changed):
    """The app has a pattern, too, which a topic of three partitions matches."""
    app: App[Any] = App("x", inputs=[Topic("payments-x"), Topic.matching("more-.*")], state=lambda: MapState(str, int))
    seen = facts(**changed)
    return replace(seen, app=app, topics={**seen.topics, "more-1": topic("more-1", partition_count=3)})


def test_a_topic_of_a_pattern_with_another_partition_count_moves_no_key():
    """It is left alone, and says so itself. Once it is an input, its keys have moved."""
    (finding,) = checks.as_at_a_start(matching_too())
    assert finding.where == "more-1"
    assert "it has 3 partitions and the other inputs have 2: it is not read" in finding.problem
    assert "copy its records to a topic with 2 partitions" in finding.remedy
    (taken_in,) = checks.as_at_a_start(matching_too(states=(replace(STATE, topic_ids={"more-1": "id"}),)))
    assert "not co-partitioned: payments-x has 2 partitions, more-1 has 3" in taken_in.problem


def test_a_topic_with_the_name_of_an_own_topic_of_another_app_is_named_unless_it_is_an_input():
    """An input that the chain has keeps its checks: here its partition count."""
    seen = matching_too()
    name = "more-snapshots"
    seen = replace(seen, topics={**facts().topics, name: topic(name, partition_count=3)})
    (finding,) = checks.as_at_a_start(seen)
    assert (finding.where, "one of the own topics of app more" in finding.problem) == (name, True)
    assert seen.inputs == ("payments-x",)
    taken_in = replace(seen, states=(replace(STATE, topic_ids={name: "id"}),))
    (finding,) = checks.as_at_a_start(taken_in)
    assert f"not co-partitioned: payments-x has 2 partitions, {name} has 3" in finding.problem
    alike = replace(taken_in, topics={**facts().topics, name: topic(name, partition_count=2)})
    assert list(checks.as_at_a_start(alike)) == []
    assert alike.inputs == ("payments-x", name)


def test_a_compacted_input_of_an_app_that_replays():
    """With changes in the log it may be compacted."""
    compacted = {**facts().topics, "payments-x": topic("payments-x", **{"cleanup.policy": "compact"})}
    assert not list(checks.as_at_a_start(facts(topics=compacted, settings={"restore": {"mode": "changes"}})))
    (finding,) = checks.as_at_a_start(facts(topics=compacted, settings=LEAN))
    assert "payments-x is compacted" in finding.problem


def test_b16_records_older_than_a_topic_keeps_them():
    """By Kafka's clock they are due at once: unread in the input, and in an output that is given their time."""
    found = list(checks.record_times(state(OLD)))
    assert [finding.where for finding in found] == ["payments-x", "balances-x"]
    assert "deleted before they are read" in found[0].problem
    assert "outputs have the times of their records" in found[1].problem
    assert "retention.ms=-1" in found[1].remedy


def test_a_report_counts_what_was_examined_and_has_the_findings_of_all_checks():
    """In the order of the checks."""
    report = report_of(facts(), 1.25)
    assert (report.findings, report.app_id) == ([], "x")
    counted = {"brokers": 3, "topics": 5, "partitions": 10, "states": 2}
    assert report.looked_at == {"checks": len(CHECKS), **counted}
    assert [f.check for f in report_of(without_topic("balances-x"), 0).findings] == ["topics"]


def test_an_app_recovers_by_replay_when_it_keeps_no_changes():
    """By its settings."""
    assert not facts().by_replay
    assert facts(settings=LEAN).by_replay


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, f"retention.ms={WEEK_MS}"),
        ({"cleanup.policy": "compact,delete"}, f"retention.ms={WEEK_MS}"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, "retention.bytes=1000"),
        ({"cleanup.policy": "compact"}, ""),
        ({"retention.ms": "-1"}, ""),
    ],
)
def test_a_table_whose_rows_expire_is_named(config: dict[str, str], problem: str, *, broadcast: bool) -> None:
    """With what keeps them: compaction, but where a recovery replays them. Other inputs may expire."""
    name, rates = "rates-x", Topic("rates-x", value=nullable(json(int)))
    app = App("x", inputs=[Topic("payments-x"), rates], state=lambda: MapState(str, int))
    app.table(rates, broadcast=broadcast)
    topics = with_broadcast(app, {**facts().topics, name: topic(name, **config)})
    found = list(checks.tables(facts(app=app, topics=topics)))
    assert [each.where for each in found] == [name] * bool(problem)
    assert all(problem in each.problem and each.remedy.endswith("cleanup.policy=compact`") for each in found)
    for each in checks.tables(facts(app=app, topics=topics, settings=LEAN)):
        assert "cleanup.policy=delete,retention.ms=-1,retention.bytes=-1" in each.remedy


def test_the_topic_of_a_broadcast_table_is_looked_at_once() -> None:
    """Under its own name, with any number of partitions; missing, compacted, or with one copy."""
    app = apps.converted("x")
    settings = Settings(restore=RestoreSettings(mode="replay"))

    def seen(**changed: Any) -> DoctorFacts:
        kept = {"retention.ms": "-1", **changed}
        topics = {**facts().topics, "rates-x": topic("rates-x", partition_count=3, **kept)}
        return facts(app=app, topics=with_broadcast(app, topics))

    assert seen().inputs == ("payments-x", "rates-x/0", "rates-x/1", "rates-x/2")
    assert [each for check in CHECKS for each in check(seen())] == []
    (alone,) = checks.durability(seen(replication_factor=1, **{"min.insync.replicas": "1"}))
    assert alone.where == "rates-x"
    (missing,) = checks.existence(facts(app=app))
    assert missing.where == "rates-x"
    compacted = replace(seen(**{"cleanup.policy": "compact"}), settings=settings)
    (refused,) = checks.as_at_a_start(compacted)
    assert refused.problem == "input rates-x is compacted: it cannot be replayed"


@pytest.mark.parametrize(
    ("count", "problem", "remedy"),
    [
        (
            3,
            "was deleted and created again: partitions 0, 1 recorded id before, the topic now has id now",
            "do nothing",
        ),
        (2, "has 2 partitions, but partition 2 of it was read: it was created again", "--leave-records"),
        (1, "has 1 partition, but partitions 1, 2 of it were read: it was created again", "--leave-records"),
    ],
)
def test_a_broadcast_table_that_was_created_again_is_one_finding(count: int, problem: str, remedy: str) -> None:
    """With fewer partitions, its records do not matter."""
    topics = {**facts().topics, "rates-x": topic("rates-x", partition_count=count, topic_id="now")}
    recorded = {f"rates-x/{number}": "before" for number in range(3)}
    states = tuple(replace(each, topic_ids=recorded) for each in facts().states)
    app = apps.converted("x")
    finding = only(checks.same_topics, facts(app=app, topics=with_broadcast(app, topics), states=states))
    assert finding.where == "rates-x"
    assert finding.problem.startswith(problem)
    assert remedy in finding.remedy
