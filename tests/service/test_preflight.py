"""What is wrong is refused by name before any partition is touched."""

import pytest

from snapreplay.errors import StopError, UsageError
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from snapreplay.service.preflight import inspect
from snapreplay.service.topics.requirements import KEPT_FOR_EVER, TopicsIncomplete
from tests.support import apps
from tests.support.stage import settings_for
from tests.support.tampering import delete, grow, recreate

pytestmark = pytest.mark.kafka


async def test_a_good_cluster_gives_what_partitions_need(stage, unique):
    """Cluster id, partition count, limits of what is written, the longest a transaction may last."""
    here = await stage(apps.ledger(unique("fine")), partitions=3, errors={"policy": "dead_letter"})
    view = await inspect(here.app, here.settings(), here.cluster)
    assert view.partition_count == 3
    assert view.cluster_id == (await here.cluster.facts()).cluster_id != ""
    name = here.app.app_id
    assert view.output_limits == {f"balances-{name}": 1048588, f"{name}-dead-letters": 1048588}
    assert view.transaction_timeout_max_ms == 900_000


async def test_without_topics_the_commands_that_make_them_are_named(broker, unique):
    """First ensure, then init."""
    app = apps.ledger(unique("bare"))
    settings = settings_for(broker.bootstrap_servers)
    cluster = KafkaCluster(settings)
    io = [f"payments-{app.app_id}", f"balances-{app.app_id}"]
    await cluster.create_topics([NewTopic(name, 2) for name in io])
    with pytest.raises(UsageError) as refused:
        await inspect(app, settings, cluster)
    assert f"{app.app_id}-increments, {app.app_id}-snapshots" in refused.value.message
    assert "snapreplay topics ensure" in refused.value.hint
    assert "snapreplay init" in refused.value.hint


@pytest.mark.parametrize("suffix", ["increments", "snapshots"])
async def test_half_a_pair_is_refused(stage, unique, suffix):
    """The state was lost or removed."""
    here = await stage(apps.ledger(unique("half")))
    delete(here.bootstrap_servers, f"{here.app.app_id}-{suffix}")
    with pytest.raises(TopicsIncomplete, match=f"{here.app.app_id}-{suffix}"):
        await inspect(here.app, here.settings(), here.cluster)


@pytest.mark.parametrize("suffix", ["increments", "snapshots"])
async def test_a_running_app_is_not_refused_for_a_topic_of_its_own_that_is_gone(
    stage, unique, suffix
):
    """What was in it is in the memory of its owners; the other one is checked as ever."""
    here = await stage(apps.ledger(unique("half")))
    delete(here.bootstrap_servers, f"{here.app.app_id}-{suffix}")
    view = await inspect(here.app, here.settings(), here.cluster, running=True)
    assert f"{here.app.app_id}-{suffix}" not in view.topic_ids
    assert len(view.topic_ids) == 2


async def test_a_missing_dead_letter_topic_is_no_lost_state(stage, unique):
    """The policy was switched on later: ensure makes it, init is not named."""
    here = await stage(apps.ledger(unique("dead")))
    settings = here.settings(errors={"policy": "dead_letter"})
    with pytest.raises(UsageError, match="dead-letters") as refused:
        await inspect(here.app, settings, here.cluster)
    assert "init" not in refused.value.hint


async def test_an_unknown_input_is_named_with_its_neighbour(stage, unique):
    """Did you mean."""
    here = await stage(apps.ledger(unique("near")))
    other = apps.ledger(f"{here.app.app_id}x")
    with pytest.raises(UsageError) as refused:
        await inspect(other, here.settings(), here.cluster)
    assert f"'payments-{other.app_id}'" in refused.value.message
    assert f"did you mean 'payments-{here.app.app_id}'" in refused.value.hint


async def test_more_partitions_of_an_input_are_refused(stage, unique):
    """Keys have moved, state cannot follow: both counts are named."""
    here = await stage(apps.ledger(unique("grown")), partitions=2)
    grow(here.bootstrap_servers, f"payments-{here.app.app_id}", 4)
    with pytest.raises(StopError, match="has 2 partitions, but the inputs have 4"):
        await inspect(here.app, here.settings(), here.cluster)


async def test_a_compacted_log_of_ours_is_refused(stage, unique):
    """Somebody altered it, or created it by hand."""
    here = await stage(apps.ledger(unique("compact")))
    topic = f"{here.app.app_id}-snapshots"
    recreate(here.bootstrap_servers, topic, 1, KEPT_FOR_EVER | {"cleanup.policy": "compact"})
    with pytest.raises(StopError, match=r"snapshots has cleanup\.policy=compact"):
        await inspect(here.app, here.settings(), here.cluster)


async def test_a_compacted_input_cannot_be_replayed(stage, unique):
    """By changes it can be used."""
    here = await stage(apps.ledger(unique("input")))
    topic = f"payments-{here.app.app_id}"
    recreate(here.bootstrap_servers, topic, 1, {"cleanup.policy": "compact"})
    await inspect(here.app, here.settings(), here.cluster)
    for tables in ({"restore": {"mode": "replay"}}, {"changelog": {"enabled": False}}):
        with pytest.raises(UsageError, match=f"{topic} is compacted"):
            await inspect(here.app, here.settings(**tables), here.cluster)


async def test_a_state_that_is_no_map_needs_an_input_that_can_be_replayed(stage, unique):
    """It writes no changes, whatever the settings say."""
    here = await stage(apps.tape(unique("tape")))
    recreate(here.bootstrap_servers, here.app.inputs[0].name, 1, {"cleanup.policy": "compact"})
    with pytest.raises(UsageError, match="is compacted"):
        await inspect(here.app, here.settings(), here.cluster)


async def test_dead_letters_need_a_state_that_can_roll_back(stage, unique):
    """Half of a failed record's effects would stay."""
    here = await stage(apps.tape(unique("tape")))
    settings = here.settings(errors={"policy": "dead_letter"})
    cluster = here.cluster
    await cluster.create_topics([NewTopic(f"{here.app.app_id}-dead-letters", 1)])
    with pytest.raises(UsageError, match="cannot roll back"):
        await inspect(here.app, settings, cluster)
    undoable = apps.tape(here.app.app_id, apps.Undoable)
    await inspect(undoable, settings, cluster)


async def test_a_transaction_timeout_above_the_brokers_is_refused(stage, unique):
    """Both values are named: the broker would refuse every producer."""
    here = await stage(apps.ledger(unique("timeout")))
    settings = here.settings(timeouts={"transaction_ms": 900_001})
    with pytest.raises(UsageError, match=r"900001.*900000"):
        await inspect(here.app, settings, here.cluster)


async def test_an_absent_broker_is_no_refusal(unique, free_port):
    """It may come: the caller asks again."""
    settings = settings_for(f"127.0.0.1:{free_port}")
    with pytest.raises(Unreachable):
        await inspect(apps.ledger(unique("absent")), settings, KafkaCluster(settings))
