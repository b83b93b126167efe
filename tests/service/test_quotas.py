"""Quotas of a real broker: what is throttled waits, without a doubt, and says for what."""

import random
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app.record import Output
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.control.counters import THROTTLED_SECONDS
from snapreplay.service.kafka import throttling
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic
from tests.support import kafka_tools
from tests.support.deadlines import scaled
from tests.support.stage import Stage, processed, settings_for, snapshot
from tests.support.steady import KEEPS_LEADERS

RATE_BYTES = 20_000
ROUND_BYTES = 300_000
"""Kafka averages over eleven seconds, so that 220 kB pass at once."""


@pytest.fixture
def metered():
    """A broker with a quota for our client id."""
    with LocalBroker(properties=KEEPS_LEADERS, deadline_s=scaled(60)) as broker:
        yield broker.bootstrap_servers


def limit_clients(bootstrap_servers: str, quota: str) -> None:
    entity = ["--entity-type", "clients", "--entity-name", "snapreplay"]
    set_it = ["kafka-configs.sh", "--bootstrap-server", bootstrap_servers, "--alter", *entity, "--add-config"]
    kafka_tools.run([*set_it, quota])


def noted(name: str) -> App[Any]:
    """Keeps the value of each key, which is written with each batch."""
    app: App[Any] = App(name, inputs=[Topic(f"notes-{name}")], state=lambda: MapState(str, str))

    @app.handler(app.inputs[0])
    def note(record, state, out):
        state[record.key] = record.value

    return app


@pytest.mark.kafka
@pytest.mark.whole
async def test_what_is_throttled_waits_without_a_doubt_and_says_so(metered, unique, caplog, monkeypatch):
    """Produce answers with a wait of several times the deadline of a commit. In status, readiness and log."""
    monkeypatch.setattr(throttling, "THROTTLING", throttling.Throttling())
    here = await Stage(metered, noted(unique("metered"))).prepare()
    limit_clients(metered, f"producer_byte_rate={RATE_BYTES}")
    text = random.Random(1)
    kafka = {"bootstrap.servers": metered, "request.timeout.ms": 1000}
    timeouts = {"commit_ms": 2000, "transaction_ms": 30_000}
    async with here.running(kafka=kafka, timeouts=timeouts) as service:
        for number in range(3):
            await here.send([("key", text.randbytes(ROUND_BYTES // 2).hex() if number < 2 else "small")])
            await processed(service, {0: number + 1})
        (status,) = service.restore_status()
        told = service.control.facts().trouble
        assert "throttled by a quota: after the last Produce request of client id 'snapreplay'" in told
        assert [each.detail for each in service.control.ready_checks() if each.name == "quotas"] == [told]
        assert service.control.ready()
        await snapshot(service)
        assert (status.restore.attempts, "in doubt" in caplog.text, "trying again" in caplog.text) == (1, False, False)
    assert "producer_byte_rate" in caplog.text


@pytest.mark.kafka
@pytest.mark.whole
async def test_a_feed_waits_for_a_quota_and_says_so(metered, unique, caplog):
    """Several batches of a transaction, each throttled for longer than a commit and a request may take."""
    limit_clients(metered, f"producer_byte_rate={RATE_BYTES}")
    topic = unique("fed")
    kafka = {"bootstrap.servers": metered, "request.timeout.ms": 1000, "max.batch.size": 120_000}
    settings = settings_for(metered, kafka=kafka, timeouts={"commit_ms": 2000, "transaction_ms": 60_000})
    await KafkaCluster(settings).create_topics([NewTopic(topic, 1)])
    text = random.Random(1)
    feeder = KafkaFeeder(settings, topic)
    throttled = THROTTLED_SECONDS.labels("Produce")
    before_seconds = throttled._value.get()
    await feeder.start()
    try:
        places = await feeder.feed([Output(topic, None, text.randbytes(100_000), 0, False, None) for _ in range(4)])
    finally:
        await feeder.close()
    assert [offset for _, offset in places] == [0, 1, 2, 3]
    assert "throttled by a quota: after the last Produce request" in caplog.text
    assert throttled._value.get() > before_seconds + 5


@pytest.mark.kafka
@pytest.mark.whole
async def test_topics_are_created_in_spite_of_a_quota_of_the_controller(metered, unique, caplog):
    """The broker makes the client wait for longer than a call may take (KIP-599)."""
    limit_clients(metered, "controller_mutation_rate=1")
    name = unique("many")
    kafka = {"bootstrap.servers": metered, "request.timeout.ms": 1000}
    cluster = KafkaCluster(settings_for(metered, kafka=kafka))
    await cluster.create_topics([NewTopic(name, 18)])
    assert (await cluster.topics([name]))[name].partition_count == 18
    assert "raise controller_mutation_rate" in caplog.text
