"""Topic ids on connections that are kept, of a real broker."""

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.admin import KafkaAdmin, KafkaTopicWatch
from snapreplay.service.ports import NewTopic
from tests.support.kafka import Since, hasty
from tests.support.tampering import delete

pytestmark = pytest.mark.kafka


@pytest.fixture
async def watch(settings):
    """Provide a watch and close it at the end."""
    made = KafkaTopicWatch(settings)
    yield made
    await made.close()


async def test_another_topic_of_the_same_name_has_another_id(watch, settings, unique):
    """On the same connection; meanwhile it is absent, and asking does not create it."""
    name, admin, since = unique("watched"), KafkaAdmin(settings), Since(settings.bootstrap_servers[0])
    await admin.create_topics([NewTopic(name, 1)])
    first = await watch.ids([name])
    connections = since.sockets
    assert first == {name: (await admin.topics([name]))[name].topic_id}
    delete(settings.kafka["bootstrap.servers"], name)
    assert await watch.ids([name]) == {}
    await admin.create_topics([NewTopic(name, 1)])
    second = await watch.ids([name])
    assert second[name] not in {first[name], ""}
    assert since.sockets == connections


async def test_an_absent_broker_is_unreachable_and_asked_again(closed_port):
    """The next question makes a new connection."""
    watch = KafkaTopicWatch(hasty(f"127.0.0.1:{closed_port}", 200))
    for _ in range(2):
        with pytest.raises(Unreachable):
            await watch.ids(["unknown"])
