"""Attack B16: the time of old records becomes the time of the topic, and retention deletes what was just written."""

import asyncio
import time

import pytest
from confluent_kafka import Producer

from snapreplay.service.ports import NewTopic
from tests.support import apps, inside
from tests.support.tampering import messages

Y2013_MS = 1_357_000_000_000


def written(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, key=b"a", value=b'{"amount": 1}', timestamp=Y2013_MS)
    assert producer.flush(20) == 0


@pytest.mark.kafka
async def test_b16_outputs_have_the_time_of_writing(stage, unique):
    """An output topic with a retention of a day keeps what a record of 2013 caused: it is of now. So are our own
    records, and the state knows the record's time all the same."""
    app = apps.ledger(unique("b16"))
    before_ms = int(time.time() * 1000)
    aside = await stage(apps.ledger(unique("aside")))
    config = {"retention.ms": "86400000"}
    await aside.cluster.create_topics([NewTopic(app.outputs[0].name, 1, config=config)])
    here = await stage(app)
    await asyncio.to_thread(written, here.bootstrap_servers, app.inputs[0].name)
    async with here.running() as service:
        await here.all_processed(service)
        runner = inside.runner(service)
        assert runner.store.stream_time_ms == Y2013_MS
    for topic in (app.outputs[0].name, f"{app.app_id}-increments"):
        (first,) = await asyncio.to_thread(messages, here.bootstrap_servers, topic, 1)
        assert first.timestamp()[1] >= before_ms - 60_000, topic
