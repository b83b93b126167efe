"""Records with headers that Kafka takes and the client does not: names that are not UTF-8, values that are null."""

import gzip

import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import memory_records
from aiokafka.record.default_records import _DefaultRecordBatchPy

from snapreplay.app.record import RawRecord
from snapreplay.service.kafka import fetch_by_id
from snapreplay.service.kafka.fetch_by_id import batch_holding
from snapreplay.service.ports import TopicPartition
from tests.support.foreign_records import Foreign, batch, produce
from tests.support.kafka import until_async

AT_MS = 1_700_000_000_000
ODD = (b"\xff\xfe", b"x")
SHOWN = ("\\xff\\xfe", b"x")
CODECS = [(0, None), (1, gzip.compress), (2, snappy_encode), (3, lz4_encode), (4, zstd_encode)]


def records(*headers):
    return [Foreign(AT_MS + n, b"k%d" % n, b"v%d" % n, each) for n, each in enumerate(headers)]


@pytest.mark.parametrize(("codec", "packed"), CODECS)
def test_a_batch_is_decoded_as_the_client_decodes_it(codec, packed):
    """Names as text where they are, null keys and values, the offset and the time of each record."""
    data = batch(records([(b"a", b"1"), (b"b", None)], [], [ODD]), codec, packed)
    found = batch_holding(data + b"rest", 1, "in", 3)
    assert [each.headers for each in found.records] == [(("a", b"1"), ("b", None)), (), (SHOWN,)]
    assert [(each.offset, each.timestamp - AT_MS, each.key) for each in found.records] == [
        (n, n, b"k%d" % n) for n in range(3)
    ]
    assert (found.next_offset, found.ends_at) == (3, len(data))
    null = batch_holding(batch([Foreign(-1, None, None)]), 0, "in", 0).records[0]
    assert (null.key, null.value, null.timestamp) == (None, None, -1)


@pytest.mark.parametrize("cut", [1, 30, 61, 70, -1])
def test_a_cut_batch_is_damaged_and_nothing_else(cut):
    data = batch(records([ODD]))
    with pytest.raises(CorruptRecordException):
        batch_holding(data[:cut], 0, "in", 0)


@pytest.mark.kafka
@pytest.mark.parametrize(("codec", "packed", "pure"), [(*CODECS[0], False), (*CODECS[1], False), (*CODECS[0], True)])
async def test_records_around_an_odd_name_are_all_read(cluster, broker, new_topic, codec, packed, pure, monkeypatch):
    """Before it and behind it, in its batch and in others, at a first and at a later record of a fetch; by one read
    from the start, one from the middle of the batch, and one that follows. Also by the client's parser in Python, which
    wraps the error."""
    if pure:
        monkeypatch.setattr(memory_records, "DefaultRecordBatch", _DefaultRecordBatchPy)
        for module in (fetcher, fetch_by_id):
            monkeypatch.setattr(module, "MemoryRecords", memory_records._MemoryRecordsPy)
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
    await reader.close()
