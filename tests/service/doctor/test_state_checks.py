"""Findings about what a recovery needs: each appears for its reason, and only then."""

from dataclasses import replace

import pytest

from snapreplay.service.doctor import state_checks as checks
from snapreplay.service.doctor.facts import StateSeen
from snapreplay.snapshots.format.records import Paused
from tests.support.healthy import (
    HOUR_MS,
    NOW_MS,
    SNAPSHOT,
    STATE,
    WEEK_MS,
    facts,
    only,
    topic,
    with_topic,
    without_topic,
)

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
    old = replace(STATE, newest=replace(SNAPSHOT, created_at_ms=NOW_MS - WEEK_MS // 2 - HOUR_MS))
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
    assert "timestamp_ms=" in found[1].problem
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
