"""Records without the parts that nobody reads, and errors that somebody reads."""

import pytest

from snapreplay.service.kafka.fetch_by_id import FetchWatch
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.kafka import until_async

pytestmark = pytest.mark.kafka


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
