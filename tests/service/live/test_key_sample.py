"""A producer that does not partition as the app declares is named while the partition is LIVE."""

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.service.core.partitioners import HASHES
from tests.support.stage import until


def counting(partitioner):
    topic = Topic("in", partitioner=partitioner)
    app = App("app", inputs=[topic], outputs=[Topic("out")], state=lambda: MapState(str, int))

    @app.handler(topic)
    def on_record(record, state, out):
        state[record.key] = 1

    return app


@pytest.mark.parametrize("partitioner", [None, "murmur2", "crc32"])
async def test_a_key_in_another_partition_is_named_once(bench, partitioner, caplog):
    """It is processed all the same."""
    app, key = counting(partitioner), next(f"k{n}" for n in range(99) if _is_apart(b"k%d" % n))
    bench.app = app
    bench.create_topics(2)
    await bench.prepare(app)
    async with bench.live() as one:
        for _ in range(2):
            await bench.send([(key, 1)])
            await one.position(bench.log("in").end)
        await until(lambda: one.view() == {key: 1}, "the record")
    named = [line for line in caplog.messages if "does not partition by" in line]
    assert len(named) == (partitioner == "murmur2")
    assert all(f"key '{key}' is in partition 0, as crc32 does" in line for line in named)


def _is_apart(key):
    """Whether crc32 gives partition 0 and murmur2 does not."""
    return [HASHES[name].partition(key, 2) for name in ("crc32", "murmur2")] == [0, 1]
