"""Tests that what is wrong is refused by name before any partition is touched. On a real broker: tests/hints."""

import pytest

from snapreplay.errors import StopError, UsageError
from snapreplay.service.config.groups import ErrorSettings, TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.preflight import inspect
from snapreplay.service.topics.requirements import MissingInput, TopicsIncomplete
from tests.support import apps
from tests.support.healthy import healthy_topics
from tests.support.stage import settings_for

APP = apps.ledger("x")
DEAD_LETTERS = Settings(errors=ErrorSettings(policy="dead_letter"))


async def test_a_good_cluster_gives_what_partitions_need(stage, unique):
    """Cluster id, partition count, limits of what is written, the longest a transaction may last, ids."""
    here = await stage(apps.ledger(unique("fine")), partitions=3, errors={"policy": "dead_letter"})
    view = await inspect(here.app, here.settings(), here.cluster)
    assert view.partition_count == 3
    assert view.cluster_id == (await here.cluster.facts()).cluster_id != ""
    name = here.app.app_id
    assert view.output_limits == {f"balances-{name}": 1048588, f"{name}-dead-letters": 1048588}
    assert view.transaction_timeout_max_ms == 900_000
    assert set(view.topic_ids) == {f"payments-{name}", f"{name}-increments", f"{name}-snapshots"}


async def test_without_topics_the_commands_that_make_them_are_named():
    """First ensure, then init."""
    with pytest.raises(UsageError, match="x-increments, x-snapshots") as refused:
        await inspect(APP, Settings(), healthy_topics("increments", "snapshots"))
    assert "snapreplay topics ensure" in refused.value.hint
    assert "snapreplay init" in refused.value.hint


@pytest.mark.parametrize("missing", ["increments", "snapshots"])
async def test_half_a_pair_is_refused_unless_the_app_runs(missing):
    """The state was lost or removed; of a running app it is in the memory of its owners."""
    with pytest.raises(TopicsIncomplete, match=f"x-{missing}"):
        await inspect(APP, Settings(), healthy_topics(missing))
    view = await inspect(APP, Settings(), healthy_topics())
    view = await inspect(APP, Settings(), healthy_topics(missing), running=view)
    assert view.partition_count == 2
    other = {"increments": "snapshots", "snapshots": "increments"}[missing]
    compacted = {other: {"cleanup.policy": "compact"}}
    with pytest.raises(StopError, match=f"x-{other} has cleanup"):
        await inspect(APP, Settings(), healthy_topics(missing, **compacted), running=view)


async def test_a_missing_dead_letter_topic_is_no_lost_state():
    """The policy was switched on later: ensure makes it, init is not named."""
    with pytest.raises(UsageError, match="dead-letters") as refused:
        await inspect(APP, DEAD_LETTERS, healthy_topics())
    assert "init" not in refused.value.hint


async def test_an_unknown_input_is_named_with_its_neighbour():
    """Did you mean."""
    with pytest.raises(MissingInput, match="'payments-xx'") as refused:
        await inspect(apps.ledger("xx"), Settings(), healthy_topics())
    assert "did you mean 'payments-x'" in refused.value.hint


async def test_more_partitions_of_an_input_are_refused():
    """Keys have moved, state cannot follow: both counts are named."""
    with pytest.raises(StopError, match="has 2 partitions, but the inputs have 4"):
        await inspect(APP, Settings(), healthy_topics(inputs={"partition_count": 4}))


@pytest.mark.parametrize(
    ("app", "tables", "refused"),
    [(APP, {}, False), (APP, {"restore": {"mode": "replay"}}, True), (APP, {"changelog": {"enabled": False}}, True)],
    ids=["by changes", "by replay", "lean"],
)
async def test_a_compacted_input_cannot_be_replayed(app, tables, refused):
    """By changes it can be used."""
    cluster = healthy_topics(inputs={"cleanup.policy": "compact"})
    if not refused:
        await inspect(app, Settings(**tables), cluster)
        return
    with pytest.raises(UsageError, match="payments-x is compacted"):
        await inspect(app, Settings(**tables), cluster)


async def test_a_transaction_timeout_above_the_brokers_is_refused():
    """Both values are named: the broker would refuse every producer."""
    with pytest.raises(UsageError, match=r"900001.*900000"):
        await inspect(APP, Settings(timeouts=TimeoutSettings(transaction_ms=900_001)), healthy_topics())


async def test_an_absent_broker_is_no_refusal(closed_port):
    """It may come: the caller asks again."""
    settings = settings_for(f"127.0.0.1:{closed_port}")
    with pytest.raises(Unreachable):
        await inspect(APP, settings, KafkaCluster(settings))
