"""Records with headers that Kafka takes and the client does not: names that are not UTF-8, values that are null."""

import gzip

import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.record import memory_records
from aiokafka.record.default_records import _DefaultRecordBatchPy

from snapreplay import engine
from snapreplay.app.record import RawRecord
from snapreplay.service.kafka import records as parsers
from snapreplay.service.kafka.records import Records
from snapreplay.service.ports import TopicPartition
from tests.support.foreign_records import Foreign, batch, produce
from tests.support.kafka import until_async

AT_MS = 1_700_000_000_000
ODD = (b"\xff\xfe", b"x")
SHOWN = ("\\xff\\xfe", b"x")
CODECS = [(0, None), (1, gzip.compress), (2, snappy_encode), (3, lz4_encode), (4, zstd_encode)]


def records(*headers):
    return [Foreign(AT_MS + n, b"k%d" % n, b"v%d" % n, each) for n, each in enumerate(headers)]


@pytest.mark.parametrize("by", ["engine", "client"])
@pytest.mark.parametrize(("codec", "packed"), CODECS)
def test_an_odd_name_is_read_beside_others(codec, packed, by, monkeypatch):
    """Names as text where they are, null keys and values, the offset and the time of each record."""
    if by == "client":
        monkeypatch.setattr(engine, "compiled", None)
    data = batch(records([(b"a", b"1"), (b"b", None)], [], [ODD], []), codec, packed)
    found = Records(TopicPartition("in", 3), data, [], 0).take(9)
    assert [each.headers for each in found] == [(("a", b"1"), ("b", None)), (), (SHOWN,), ()]
    assert [(each.offset, each.timestamp - AT_MS, each.key) for each in found] == [(n, n, b"k%d" % n) for n in range(4)]


@pytest.mark.parametrize(("codec", "packed", "pure"), [(*CODECS[0], False), (*CODECS[1], False), (*CODECS[0], True)])
async def test_records_around_an_odd_name_are_all_read(cluster, broker, new_topic, codec, packed, pure, monkeypatch):
    """Before it and behind it, in its batch and in others, at a first and at a later record of a fetch; by one read
    from the start, one from the middle of the batch, and one that follows. Also by the client's parser in Python, which
    wraps the error."""
    if pure:
        monkeypatch.setattr(memory_records, "DefaultRecordBatch", _DefaultRecordBatchPy)
        monkeypatch.setattr(parsers, "MemoryRecords", memory_records._MemoryRecordsPy)
        monkeypatch.setattr(engine, "compiled", None)
    source = TopicPartition(await new_topic(), 0)
    for each in (
        batch(records([], [(b"n", None)])),
        batch(records([], [ODD], [], [ODD]), codec, packed),
        batch(records([ODD])),
        batch(records([])),
    ):
        produce(broker.bootstrap_servers, source.topic, source.partition, each)
    expected = [(), (("n", None),), (), (SHOWN,), (), (SHOWN,), (SHOWN,), ()]
    reader = await cluster.reader()
    for start in (0, 3, 4):
        found = [record async for some in reader.read(source, start, 8) for record in some]
        assert [(each.offset, each.headers) for each in found] == list(enumerate(expected))[start:]
    await reader.follow({source: 2})
    followed: list[RawRecord] = []
    while len(followed) < 6:
        followed += (await until_async(lambda: reader.poll(2, 100), bool))[source]
    assert [each.headers for each in followed] == expected[2:]
    assert reader.position(source) == 8
