"""An app's topics on a real broker: made once, never repaired by an empty one, refused by name."""

import pytest

from snapreplay import App, Topic
from snapreplay.errors import StopError, UsageError
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from snapreplay.service.topics.requirements import (
    KEPT_FOR_EVER,
    RECORD_BYTES_NEEDED,
    TopicsIncomplete,
    check_own_topic,
    ensure_topics,
)
from tests.support import apps
from tests.support.stage import settings_for

pytestmark = pytest.mark.kafka

APP = apps.ledger("topics")


@pytest.fixture
def settings(broker):
    return settings_for(broker.bootstrap_servers)


@pytest.fixture
def cluster(settings):
    return KafkaCluster(settings)


async def create(cluster, *names, partitions=2, **config):
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    await cluster.create_topics([NewTopic(name, partitions, config=dotted) for name in names])


async def test_all_absent_topics_are_created_as_they_must_be(cluster, settings, unique):
    """With the inputs' partition count, kept for ever; a second call only checks."""
    app = apps.ledger(unique("topics"))
    name = app.app_id
    await create(cluster, f"payments-{name}", f"balances-{name}", partitions=3)
    lines = await ensure_topics(app, settings, cluster)
    own = [f"{name}-increments", f"{name}-snapshots"]
    assert lines == [f"created {topic} (3 partitions)" for topic in own]
    for topic, facts in (await cluster.topics(own)).items():
        check_own_topic(APP, facts, 3)
        assert facts.partition_count == 3, topic
        assert KEPT_FOR_EVER.items() <= facts.config.items()
    assert await ensure_topics(app, settings, cluster) == [f"ok {topic}" for topic in own]


async def test_dead_letters_have_a_topic_where_the_policy_writes_them(cluster, broker, unique):
    """And nowhere else."""
    app = apps.ledger(unique("topics"))
    settings = settings_for(broker.bootstrap_servers, errors={"policy": "dead_letter"})
    lines = await ensure_topics(app, settings, cluster, create_io_partitions=2)
    assert lines[-1] == f"created {app.app_id}-dead-letters (2 partitions)"


async def test_a_pair_that_would_lose_state_is_not_called_ok(cluster, settings, unique):
    """A deployment that runs `topics ensure` learns it from that, before anything runs."""
    app = apps.ledger(unique("topics"))
    name = app.app_id
    await create(cluster, f"payments-{name}", f"balances-{name}", f"{name}-snapshots")
    await create(cluster, f"{name}-increments", retention_ms="86400000")
    with pytest.raises(StopError, match=f"{name}-increments has retention.ms=86400000"):
        await ensure_topics(app, settings, cluster)


@pytest.mark.parametrize("suffix", ["increments", "snapshots"])
async def test_half_a_pair_is_never_completed(cluster, settings, unique, suffix):
    """The other one was lost: a new empty one would look like a new app."""
    app = apps.ledger(unique("topics"))
    name = app.app_id
    await create(cluster, f"payments-{name}", f"balances-{name}", f"{name}-{suffix}")
    with pytest.raises(TopicsIncomplete) as refused:
        await ensure_topics(app, settings, cluster)
    missing = {"increments": "snapshots", "snapshots": "increments"}[suffix]
    assert refused.value.facts["topic"] == f"{name}-{missing}"
    assert "--replace-lost" in refused.value.hint
    assert f"{name}-{missing}" not in await cluster.topic_names()


async def test_a_missing_input_is_named_with_its_neighbour(cluster, settings, unique):
    """A spelling mistake is the usual reason."""
    name = unique("topics")
    await create(cluster, f"payments-{name}", f"balances-{name}")
    misspelt = Topic(f"paymnets-{name}")
    app = App(name, inputs=[misspelt], outputs=[Topic(f"balances-{name}")], state=apps.accounts)
    with pytest.raises(UsageError) as refused:
        await ensure_topics(app, settings, cluster)
    assert f"paymnets-{name}" in refused.value.message
    assert f"did you mean 'payments-{name}'" in refused.value.hint
    assert f"{name}-increments" not in await cluster.topic_names()


async def test_inputs_that_are_not_co_partitioned_are_refused(cluster, settings, unique):
    """Both counts are named, and nothing is created."""
    app = apps.pair(unique("topics"))
    name = app.app_id
    await create(cluster, f"left-{name}", f"merged-{name}", partitions=2)
    await create(cluster, f"right-{name}", partitions=3)
    with pytest.raises(UsageError, match=f"left-{name} has 2, right-{name} has 3") as refused:
        await ensure_topics(app, settings, cluster)
    assert "as many partitions as the other" in refused.value.hint
    assert f"{name}-increments" not in await cluster.topic_names()


@pytest.mark.parametrize(
    ("config", "message", "remedy"),
    [
        ({"cleanup_policy": "compact"}, "cleanup.policy=compact", "cleanup.policy=delete"),
        ({"retention_ms": "1000"}, "retention.ms=1000", "retention.ms=-1"),
        ({"retention_bytes": "1000"}, "retention.bytes=1000", "retention.bytes=-1"),
        ({"max_message_bytes": "100000"}, "max.message.bytes=100000", "max.message.bytes=1048588"),
    ],
)
async def test_a_log_that_would_lose_state_is_refused(cluster, unique, config, message, remedy):
    """By topic and value, with the command that repairs it."""
    topic = f"{unique('topics')}-increments"
    kept = {key.replace(".", "_"): value for key, value in KEPT_FOR_EVER.items()}
    await create(cluster, topic, **(kept | config))
    facts = (await cluster.topics([topic]))[topic]
    with pytest.raises(StopError, match=message) as refused:
        check_own_topic(APP, facts, 2)
    assert topic in refused.value.message
    assert f"--topic {topic} --add-config {remedy}" in refused.value.hint


async def test_the_default_limit_of_kafka_holds_our_records(cluster, unique):
    """1,048,588 bytes: nobody has to raise anything."""
    topic = f"{unique('topics')}-increments"
    await create(cluster, topic, cleanup_policy="delete", retention_ms="-1", retention_bytes="-1")
    facts = (await cluster.topics([topic]))[topic]
    assert int(facts.config["max.message.bytes"]) > RECORD_BYTES_NEEDED
    check_own_topic(APP, facts, 2)


async def test_another_partition_count_is_refused(cluster, unique):
    """Keys have moved: both counts are facts."""
    topic = f"{unique('topics')}-increments"
    await create(cluster, topic, partitions=2)
    facts = (await cluster.topics([topic]))[topic]
    with pytest.raises(StopError, match="has 2 partitions, but the inputs have 4") as refused:
        check_own_topic(APP, facts, 4)
    assert refused.value.facts == {"found": 2, "expected": 4}
