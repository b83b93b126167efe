"""Attack B16: the time of old records becomes the time of our own topics, and retention deletes them."""

import asyncio
import time

from confluent_kafka import Producer

from tests.support import apps, inside
from tests.support.tampering import messages

Y2013_MS = 1_357_000_000_000


def written(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, key=b"a", value=b'{"amount": 1}', timestamp=Y2013_MS)
    assert producer.flush(20) == 0


async def test_b16_own_records_have_the_time_of_writing(stage, unique):
    """Those of an increments topic, for any time of the records. An output has the time of its record, which the
    state knows, too."""
    app = apps.ledger(unique("b16"))
    before_ms = int(time.time() * 1000)
    here = await stage(app)
    await asyncio.to_thread(written, here.bootstrap_servers, app.inputs[0].name)
    async with here.running() as service:
        await here.all_processed(service)
        runner = inside.runner(service)
        assert runner.store.stream_time_ms == Y2013_MS
    times = {}
    for topic in (app.outputs[0].name, f"{app.app_id}-increments"):
        (first,) = await asyncio.to_thread(messages, here.bootstrap_servers, topic, 1)
        times[topic] = first.timestamp()[1]
    assert times.pop(app.outputs[0].name) == Y2013_MS
    assert min(times.values()) >= before_ms - 60_000
