"""Record batches that the cleaner, an old client or a producer of another make leaves in a log: a real broker serves
them, and both parsers of the client read over them."""

import asyncio

import pytest
from aiokafka.record import memory_records
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.legacy_records import _LegacyRecordBatchPy

from snapreplay import engine
from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka import records as parsers
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.topics.reading import reading
from tests.support.deadlines import within
from tests.support.record_batches import (
    ABORT,
    AT_MS,
    COMMIT,
    DELETE_HORIZON,
    TRANSACTIONAL,
    batch,
    emptied_marker,
    marker,
    message,
    write_logs,
)
from tests.support.steady import KEEPS_LEADERS

pytestmark = pytest.mark.kafka

ONE, TWO = 1001, 1002
"""Producers."""


def plain(offset: int, count: int = 1) -> bytes:
    return batch(offset, offset + count - 1, [(at, b"k", b"%d" % at) for at in range(offset, offset + count)])


def transactional(offset: int, count: int, producer_id: int) -> bytes:
    records = [(at, b"k", b"%d" % at) for at in range(offset, offset + count)]
    last_offset = offset + count - 1
    return batch(offset, last_offset, records, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)


SHAPES: dict[str, tuple[bytes, list[int]]] = {
    "emptied commit marker": (plain(0, 2) + emptied_marker(2, producer_id=ONE, producer_epoch=3) + plain(3), [0, 1, 3]),
    "only emptied markers": (b"".join(emptied_marker(at, producer_id=ONE + at) for at in range(5)), []),
    "emptied marker at the end": (plain(0) + emptied_marker(1, producer_id=ONE), [0]),
    "emptied marker inside of another's transaction": (
        transactional(0, 1, ONE) + emptied_marker(1, producer_id=TWO) + marker(2, COMMIT, producer_id=ONE),
        [0],
    ),
    "emptied marker inside of an aborted transaction of another": (
        transactional(0, 1, ONE) + emptied_marker(1, producer_id=TWO) + marker(2, ABORT, producer_id=ONE) + plain(3),
        [3],
    ),
    "emptied marker behind a gap": (plain(0) + emptied_marker(7, producer_id=ONE) + plain(12), [0, 12]),
    "emptied data batch": (
        plain(0)
        + batch(1, 6, attributes=TRANSACTIONAL, producer_id=ONE, producer_epoch=0)
        + marker(7, COMMIT, producer_id=ONE)
        + plain(8),
        [0, 8],
    ),
    "emptied data batch at the end": (plain(0) + batch(1, 6, producer_id=ONE, producer_epoch=0), [0]),
    "only an emptied data batch": (batch(0, 6, producer_id=ONE, producer_epoch=0), []),
    "records removed inside and at both ends": (
        batch(0, 9, [(3, b"k", b"3"), (5, b"k", b"5")]) + plain(10),
        [3, 5, 10],
    ),
    "the log begins in a gap": (batch(4, 9, [(7, b"k", b"7")]), [7]),
    "delete horizon": (batch(0, 1, [(0, b"k", None), (1, b"k", b"1")], attributes=DELETE_HORIZON), [0, 1]),
    "aborted to the end": (plain(0) + transactional(1, 3, ONE) + marker(4, ABORT, producer_id=ONE), [0]),
    "format 0": (b"".join(message(at, b"k", b"%d" % at, 0) for at in (0, 1, 4)), [0, 1, 4]),
    "format 1": (b"".join(message(at, b"k", b"%d" % at, 1) for at in (0, 1, 4)), [0, 1, 4]),
    "formats 0, 1, 2": (message(0, None, b"0", 0) + message(1, b"k", b"1", 1) + plain(2, 2), [0, 1, 2, 3]),
    "format 1 behind format 2": (plain(0, 2) + message(2, b"k", b"2", 1) + plain(3), [0, 1, 2, 3]),
}
"""Name → bytes of the log, offsets of the records that a reader of committed records gets."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Provide a broker with a partition for each shape, and name → partition."""
    data_dir = tmp_path_factory.mktemp("shapes")
    sources = {name: TopicPartition("shapes", number) for number, name in enumerate(SHAPES)}
    with LocalBroker(data_dir=data_dir, properties=KEEPS_LEADERS | KEEP_OLD_RECORDS) as broker:
        cluster = KafkaCluster(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}))
        asyncio.run(cluster.create_topics([NewTopic("shapes", len(SHAPES))]))
        write_logs(broker, data_dir, {sources[name]: content for name, (content, _) in SHAPES.items()})
        yield broker, sources


@pytest.fixture
def cluster(logs):
    return KafkaCluster(Settings(kafka={"bootstrap.servers": logs[0].bootstrap_servers}))


@pytest.fixture(params=["compiled", "pure"])
def parser(request, monkeypatch):
    """Let the client parse with this one."""
    if request.param == "pure":
        monkeypatch.setattr(engine, "compiled", None)
        monkeypatch.setattr(parsers, "MemoryRecords", memory_records._MemoryRecordsPy)
        monkeypatch.setattr(memory_records, "DefaultRecordBatch", _DefaultRecordBatchPy)
        monkeypatch.setattr(memory_records, "LegacyRecordBatch", _LegacyRecordBatchPy)


@pytest.mark.parametrize("name", SHAPES)
async def test_every_shape_is_read_to_its_end(cluster, logs, parser, name):
    """A window of the log, record by record, and followed as an owner does: the same records, and the position is the
    log's end."""
    source, expected = logs[1][name], SHAPES[name][1]
    async with reading(cluster) as reader, within(20):
        bounds = await reader.bounds(source)
        records = [each async for part in reader.read(source, *bounds) for each in part]
        assert [each.offset for each in records] == expected
        assert reader.position(source) == bounds.end_offset
        for at in range(bounds.end_offset):
            found = await reader.read_at(source, at)
            assert (found and found.offset) == (at if at in expected else None)
        await reader.follow({source: bounds.start_offset})
        followed = []
        while reader.position(source) < bounds.end_offset:
            followed += [each.offset for each in (await reader.poll(1, 200)).get(source, ())]
        assert followed == expected
    without_time = {"format 0": expected, "formats 0, 1, 2": [0]}.get(name, [])
    assert [each.timestamp for each in records] == [-1 if at in without_time else AT_MS for at in expected]


@pytest.mark.parametrize(
    ("name", "position", "is_cleaned"),
    [
        ("emptied commit marker", 2, False),
        ("emptied commit marker", 3, True),
        ("records removed inside and at both ends", 10, True),
        ("records removed inside and at both ends", 11, False),
        ("emptied data batch at the end", 7, True),
        ("delete horizon", 2, True),
        ("emptied marker behind a gap", 7, None),
    ],
)
async def test_a_broker_shows_what_was_cleaned_below_a_position(cluster, logs, name, position, is_cleaned):
    """None where the batch is gone."""
    reader = await cluster.reader()
    found = await reader.batch_below(logs[1][name], position)
    assert (found and found.is_cleaned) == is_cleaned
