"""An app's topics: made once, never repaired by an empty one, refused by name. By a real broker: tests/hints."""

from typing import Any

import pytest

from snapreplay import App, Topic
from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.errors import StopError, UsageError
from snapreplay.service.config.groups import ErrorSettings, RestoreSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.preflight import inspect
from snapreplay.service.topics.requirements import (
    KEPT_FOR_EVER,
    MissingInput,
    TopicsIncomplete,
    check_own_topic,
    ensure_topics,
    left_out,
    limits_now,
    matched_inputs,
    matching,
    misfits_of,
    partition_count,
)
from tests.support import apps
from tests.support.healthy import Topics, healthy_topics, topic

APP = apps.ledger("x")
OWN = ["x-increments", "x-snapshots"]


async def test_all_absent_topics_are_created_as_they_must_be():
    """With the inputs' partition count, kept for ever; a second call only checks."""
    cluster = healthy_topics("increments", "snapshots", inputs={"partition_count": 3})
    lines = await ensure_topics(APP, Settings(), cluster)
    assert lines == [f"created {name} (3 partitions)" for name in OWN]
    for facts in (await cluster.topics(OWN)).values():
        check_own_topic(APP, facts, 3)
        assert KEPT_FOR_EVER.items() <= facts.config.items()
    assert await ensure_topics(APP, Settings(), cluster) == [f"ok {name}" for name in OWN]


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_the_topic_of_a_table_keeps_its_rows(mode):
    """Compacted, unless a recovery replays it. Of other inputs and outputs the cluster has the say."""
    cluster: Any = Topics()
    settings = Settings(restore=RestoreSettings(mode=mode))
    await ensure_topics(apps.converted("x"), settings, cluster, create_io_partitions=2)
    config = cluster.known["rates-x"].config
    wanted = {"cleanup.policy": "compact"} if mode == "changes" else KEPT_FOR_EVER
    assert wanted.items() <= config.items()
    assert cluster.known["payments-x"].config == topic("payments-x").config


async def test_dead_letters_have_a_topic_where_the_policy_writes_them():
    """And nowhere else."""
    settings = Settings(errors=ErrorSettings(policy="dead_letter"))
    lines = await ensure_topics(APP, settings, healthy_topics())
    assert lines[-1] == "created x-dead-letters (2 partitions)"


async def test_a_pair_that_would_lose_state_is_not_called_ok():
    """A deployment that runs `topics ensure` learns it from that, before anything runs."""
    cluster = healthy_topics(increments={"retention.ms": "86400000"})
    with pytest.raises(StopError, match=r"x-increments has retention\.ms=86400000"):
        await ensure_topics(APP, Settings(), cluster)


@pytest.mark.parametrize("missing", ["increments", "snapshots"])
async def test_half_a_pair_is_never_completed(missing):
    """The other one was lost: a new empty one would look like a new app. It is its owners' where the app runs."""
    cluster = healthy_topics(missing)
    with pytest.raises(TopicsIncomplete) as refused:
        await ensure_topics(APP, Settings(), cluster)
    assert refused.value.facts["topic"] == f"x-{missing}"
    assert "--replace-lost" in refused.value.hint
    assert f"x-{missing}" not in cluster.known
    cluster.members = 1
    assert f"created x-{missing} (2 partitions)" in await ensure_topics(APP, Settings(), cluster)


@pytest.mark.parametrize(
    ("config", "tables", "why"),
    [
        ({"partition_count": 3}, {}, "not co-partitioned"),
        ({"cleanup.policy": "compact"}, {"restore": {"mode": "replay"}}, "is compacted"),
    ],
)
async def test_nothing_is_created_for_what_is_refused(config, tables, why):
    """A second input is missing, and would be created: not before the first one is accepted."""
    app = App("x", inputs=[*APP.inputs, Topic("more-x")], outputs=APP.outputs, state=apps.accounts)
    cluster = healthy_topics("increments", "snapshots")
    cluster.known["payments-x"] = topic("payments-x", **config)
    before = dict(cluster.known)
    with pytest.raises(UsageError, match=why):
        await ensure_topics(app, Settings(**tables), cluster, create_io_partitions=2)
    assert cluster.known == before


@pytest.mark.parametrize(
    ("pattern", "name", "owner"),
    [
        ("in-.*", "in-a", ""),
        ("in-.*", "in-a-increments", "in-a"),
        ("in-.*", "in-a-snapshots", "in-a"),
        ("in-.*", "in-a-dead-letters", "in-a"),
        ("in-.*", "in-a-savepoint-b-snapshots", "in-a"),
        ("in-.*", "in-a-internal-b", "in-a"),
        ("in-.*-dead-letters", "in-a-dead-letters", ""),
        ("in-a-internal-.*", "in-a-internal-b", ""),
    ],
)
def test_own_topics_of_other_apps_match_no_pattern_that_does_not_ask_for_them(pattern, name, owner):
    """Told by their names. One that is an input already stays it."""
    app: App[Any] = App("x", inputs=[Topic.matching(pattern)], state=apps.accounts)
    facts = {name: topic(name, partition_count=1)}
    assert matching(app, facts) == ([] if owner else [name])
    assert [f"of app {owner}." in line for line in left_out(app, facts).values()] == [True] * bool(owner)
    assert matched_inputs(app, Settings(), facts, 1, running=(name,)) == (name,)
    assert left_out(app, facts, running=(name,)) == {}
    assert partition_count(app, facts, running=(name,)) == 1


def test_the_partitions_of_a_pattern_are_those_of_what_the_app_has():
    """The increments topic tells, before there is one what matches; nothing at all is refused, as is one that grew."""
    app: App[Any] = App("x", inputs=[Topic.matching("in-.*")], state=apps.accounts)
    counts = {"x-increments": 3, "in-a": 3, "in-b": 2, "no": 7}
    facts = {name: topic(name, partition_count=count) for name, count in counts.items()}
    without = {name: each for name, each in facts.items() if name != "x-increments"}
    assert partition_count(app, facts) == 3
    assert matched_inputs(app, Settings(), facts, 3) == ("in-a",)
    compacted = {**facts, "in-c": topic("in-c", partition_count=3, **{"cleanup.policy": "compact"})}
    by_replay = Settings(restore=RestoreSettings(mode="replay"))
    assert "left out: input in-c is compacted" in misfits_of(app, by_replay, compacted, 3)["in-c"]
    with pytest.raises(UsageError, match="not co-partitioned: in-a has 3 partitions, in-b has 2 partitions"):
        partition_count(app, without)
    with pytest.raises(UsageError, match="not co-partitioned: x-increments has 3 partitions, in-b has 2 partitions"):
        partition_count(app, facts, running=("in-b",))
    with pytest.raises(MissingInput, match="no topic of app 'x' matches 'in-"):
        partition_count(app, {"no": facts["no"]})
    assert partition_count(app, {"no": facts["no"]}, 5) == 5


async def test_the_topic_of_a_broadcast_table_may_have_any_number_of_partitions():
    """Each is an input; it is created with the others, and looked at as they are."""
    app, settings = apps.converted("x"), Settings()
    cluster: Any = Topics([topic("payments-x"), topic("balances-x")])
    with pytest.raises(MissingInput, match="topic 'rates-x' of app 'x' does not exist"):
        await ensure_topics(app, settings, cluster)
    assert "created rates-x (2 partitions)" in await ensure_topics(app, settings, cluster, create_io_partitions=2)
    cluster.known["rates-x"] = topic("rates-x", partition_count=3, **{"cleanup.policy": "compact"})
    with pytest.raises(UsageError, match="input rates-x is compacted: it cannot be replayed") as refused:
        await ensure_topics(app, Settings(restore=RestoreSettings(mode="replay")), cluster)
    assert "--topic rates-x " in refused.value.hint
    assert "ok x-increments" in await ensure_topics(app, settings, cluster)
    view = await inspect(app, settings, cluster)
    assert (view.partition_count, view.matched) == (2, ("rates-x/0", "rates-x/1", "rates-x/2"))
    assert view.not_read == ()
    assert {view.topic_ids.get(name) for name in view.matched} == {cluster.known["rates-x"].topic_id or None}
    again = await inspect(app, settings, cluster, running=view)
    assert again.matched == view.matched


async def test_a_missing_input_is_named_with_its_neighbour():
    """A spelling mistake is the usual reason."""
    app = App("x", inputs=[Topic("paymnets-x")], outputs=APP.outputs, state=apps.accounts)
    cluster = healthy_topics("increments", "snapshots")
    with pytest.raises(UsageError, match="'paymnets-x'") as refused:
        await ensure_topics(app, Settings(), cluster)
    assert "did you mean 'payments-x'" in refused.value.hint
    assert "x-increments" not in cluster.known


@pytest.mark.parametrize(
    ("there", "meant"),
    [
        ("__transaction_state", ""),
        ("__consumer_offsets", ""),
        ("transactions-dead-letters", ""),
        ("transaction", "did you mean 'transaction'? Otherwise "),
    ],
)
async def test_a_missing_topic_is_no_topic_of_kafka_s_and_none_of_our_own(there, meant):
    """The guess is a topic that can be an input; the command that creates the missing one has its option."""
    app: App[Any] = App("transactions", inputs=[Topic("transactions-state")], state=dict)
    cluster = healthy_topics()
    cluster.known[there] = topic(there)
    with pytest.raises(UsageError, match="topic 'transactions-state' of app 'transactions'") as refused:
        await ensure_topics(app, Settings(), cluster)
    assert refused.value.hint.startswith(f"{meant}`snapreplay topics ensure ")
    assert "--partitions N` creates it" in refused.value.hint


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ("cleanup.policy=compact", "cleanup.policy=delete"),
        ("retention.ms=1000", "retention.ms=-1"),
        ("retention.bytes=1000", "retention.bytes=-1"),
        ("max.message.bytes=100000", "max.message.bytes=1048588"),
    ],
)
def test_a_log_that_would_lose_state_is_refused(found, remedy):
    """By topic and value, with the command that repairs it."""
    config = KEPT_FOR_EVER | dict([found.split("=")])
    with pytest.raises(StopError, match=f"x-increments has {found}") as refused:
        check_own_topic(APP, topic("x-increments", **config), 2)
    assert f"--topic x-increments --add-config {remedy}" in refused.value.hint


def test_another_partition_count_is_refused():
    """Keys have moved: both counts are facts."""
    with pytest.raises(StopError, match="has 2 partitions, but the inputs have 4") as refused:
        check_own_topic(APP, topic("x-increments", **KEPT_FOR_EVER), 4)
    assert refused.value.facts == {"found": 2, "expected": 4}


async def test_limits_are_asked_afresh_and_a_missing_topic_keeps_its_own():
    """A topic without a config of its own takes what Kafka takes by default."""
    cluster = healthy_topics(outputs={"max.message.bytes": "20000"})
    known = {"balances-x": 1_000, "payments-x": 1_000, "gone": 7}
    assert await limits_now(cluster, known) == {"balances-x": 20_000, "payments-x": DEFAULT_LIMIT_BYTES, "gone": 7}
