"""Errors behind the wire reach whoever polls."""

import pytest

from snapreplay.service.kafka.cursors import Cursor
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.kafka import until_async


async def test_an_error_of_a_fetch_reaches_whoever_polls(cluster, new_topic, monkeypatch):
    """The fetches go on afterwards."""
    source, why = TopicPartition(await new_topic(), 0), ValueError("a defect behind the wire")

    def answered(*_):
        raise why

    reader = await cluster.reader()
    with monkeypatch.context() as patched:
        patched.setattr(Cursor, "answered", answered)
        await reader.follow({source: 0})
        with pytest.raises(ValueError, match="behind the wire"):
            await until_async(lambda: reader.poll(10, 100), bool)
    appender = await cluster.appender()
    await appender.append(LogRecord(source.topic, b"value"), 0)
    found = await until_async(lambda: reader.poll(10, 100), bool)
    assert [record.value for record in found[source]] == [b"value"]
