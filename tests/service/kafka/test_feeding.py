"""The producer for people: all or nothing with an id."""

import pytest

from snapreplay.app.record import Output
from snapreplay.service.core.kafka_errors import Fenced, RefusedRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic
from tests.support.kafka import values_of
from tests.support.stage import settings_for


@pytest.fixture
async def place(broker, unique):
    """Settings, cluster, a topic with three partitions, and a function that makes feeders."""
    settings, topic = settings_for(broker.bootstrap_servers), unique("fed")
    cluster = KafkaCluster(settings)
    await cluster.create_topics([NewTopic(topic, 3, config={"max.message.bytes": "5000"})])
    made = []

    async def feeder(transactional_id=None):
        made.append(KafkaFeeder(settings, transactional_id))
        await made[-1].start()
        return made[-1]

    yield settings, cluster, topic, feeder
    for each in made:
        await each.close()


def output(topic, value, key=None, partition=0):
    return Output(topic, key, value, partition, False, 1000, (("h", b"1"),))


async def test_the_key_decides_as_in_kafka_and_offsets_are_told(place):
    """Without a partition, murmur2 of the key."""
    _, cluster, topic, feeder = place
    keys = [b"k%d" % n for n in range(20)]
    places = await (await feeder()).feed([output(topic, k, k, None) for k in keys])
    assert [each.partition for each, _ in places] == [murmur_positive(k) % 3 for k in keys]
    for number in range(3):
        mine = [k for k, (each, _) in zip(keys, places, strict=True) if each.partition == number]
        assert await values_of(cluster, topic, number) == mine


async def test_a_refused_record_takes_all_others_of_its_transaction_with_it(place, unique):
    """One is too large for the topic: none of them is committed, and readers need not wait for a timeout."""
    _, cluster, topic, feeder = place
    small, large = output(topic, b"small"), output(topic, bytes(6000), partition=1)
    with pytest.raises(RefusedRecord):
        await (await feeder(unique("feeder"))).feed([small, large])
    assert await values_of(cluster, topic, 0) == []
    assert await values_of(cluster, topic, 1) == []


async def test_a_newer_feeder_fences_an_older_one(place, unique):
    """An older feeder of the same id can do nothing more."""
    _, cluster, topic, feeder = place
    name = unique("feeder")
    old = await feeder(name)
    await old.feed([output(topic, b"one")])
    new = await feeder(name)
    with pytest.raises(Fenced):
        await old.feed([output(topic, b"twice")])
    await new.feed([output(topic, b"two")])
    assert await values_of(cluster, topic, 0) == [b"one", b"two"]
