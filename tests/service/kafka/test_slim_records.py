"""Records without the parts that nobody reads, and errors that somebody reads."""

import pytest

from snapreplay.app.record import Output, RawRecord
from snapreplay.service.kafka.fetch_by_id import FetchWatch
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.kafka import until_async

AT_MS = 1_700_000_000_000
pytestmark = pytest.mark.kafka


async def test_a_reader_gives_out_slim_records_with_all_that_was_written(cluster, new_topic, unique):
    """Null or empty keys and values, and headers, as written; not the client's own class, which costs twice as much."""
    topic = await new_topic(2)
    outputs = [
        Output(topic, b"key", b"value", 1, False, AT_MS, (("name", b"data"), ("empty", b""))),
        Output(topic, b"", b"", 1, False, AT_MS + 1),
        Output(topic, b"key", None, 1, False, AT_MS + 2),
    ]
    last = LogRecord(topic, b"value")
    producer = await cluster.fence(unique("app"))
    assert await producer.commit(1, outputs, [last]) == (3,)
    await producer.discard()
    reader, source = await cluster.reader(), TopicPartition(topic, 1)
    await until_async(lambda: reader.bounds(source), lambda bounds: bounds.end_offset == 5)
    records = [record async for records in reader.read(source, 0, 5) for record in records]
    assert [type(record) for record in records] == [RawRecord] * 4
    assert [(r.topic, r.partition, r.offset) for r in records] == [(topic, 1, i) for i in range(4)]
    assert [(r.value, r.key, r.headers) for r in records[:3]] == [(o.value, o.key, o.headers) for o in outputs]
    assert (records[3].value, records[3].key, records[3].headers) == (b"value", None, ())
    assert [record.timestamp - AT_MS for record in records[:3]] == [0, 1, 2]
    assert records[3].timestamp > AT_MS + 1_000_000
    await reader.close()


async def test_an_error_of_a_fetch_reaches_whoever_polls(cluster, new_topic, monkeypatch):
    """The client's fetcher would end, and every later poll would be empty."""
    source, why = TopicPartition(await new_topic(), 0), ValueError("a defect behind the wire")

    def answered(*_):
        raise why

    reader = await cluster.reader()
    with monkeypatch.context() as patched:
        patched.setattr(FetchWatch, "answered", answered)
        await reader.follow({source: 0})
        with pytest.raises(ValueError, match="behind the wire"):
            await until_async(lambda: reader.poll(10, 100), bool)
    appender = await cluster.appender()
    await appender.append(LogRecord(source.topic, b"value"), 0)
    await appender.close()
    found = await until_async(lambda: reader.poll(10, 100), bool)
    assert [record.value for record in found[source]] == [b"value"]
    await reader.close()
