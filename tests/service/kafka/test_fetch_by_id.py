"""Fetching by topic id on a real broker, and what is noticed on the way."""

import asyncio
import struct
from io import BytesIO
from types import SimpleNamespace

import pytest
from aiokafka.errors import UnknownError
from aiokafka.protocol.fetch import FetchRequest

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.core.kafka_errors import TopicGone
from snapreplay.service.kafka.fetch_by_id import FetchWatch
from snapreplay.service.kafka.fetches import FetchById, FetchedBatches
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import EpochEnd, LogRecord, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import hasty, until_async
from tests.support.tampering import recreate, topic_id

FETCH = FetchRequest(10, 1, 100, 1, [("t", [(0, 7, 100)])])
UNKNOWN_SERVER_ERROR = -1
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def batch(epoch, record_format=2):
    """A record batch without its records."""
    return struct.pack(">qiibIhi34x", 0, 49, epoch, record_format, 7, 0, 4)


def answer(error_code, records=b"", topic="t"):
    """Make the answer of one partition, as the client's fetcher reads it."""
    return SimpleNamespace(topics=[(topic, [(0, error_code, 9, 9, 0, [], -1, records)])])


def test_by_id_only_when_every_id_is_known():
    """A cluster without ids is read by name, as before."""
    assert isinstance(FetchWatch({"t": TOPIC_ID}).asked(FETCH), FetchById)
    assert FetchWatch({"t": ""}).asked(FETCH) is FETCH
    assert FetchWatch({}).asked(FETCH) is FETCH


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([answer(0, batch(3)), answer(0, batch(3)), answer(0, batch(4))], 0, id="good"),
        pytest.param([answer(0)], 0, id="empty"),
        pytest.param([answer(6)], 1, id="not-the-leader"),
        pytest.param([answer(3), answer(3)], 2, id="unknown-topic"),
        pytest.param([answer(0, batch(4)), answer(0, batch(3))], 1, id="epoch-fell"),
        pytest.param([answer(0, batch(4)), answer(0, batch(3), "u")], 0, id="of-another-topic"),
        pytest.param([answer(0, batch(4)), answer(0, batch(3, 1))], 0, id="old-format"),
    ],
)
async def test_what_counts_as_a_disturbance(answers, expected):
    """Whatever is refused, and a leader epoch that falls."""
    watch = FetchWatch({})
    batches = {(topic, 0): FetchedBatches(0, None) for topic in "tu"}
    for each in answers:
        watch.answered(each, batches)
    assert watch.disturbances == expected


def test_a_fetch_names_the_leader_epoch_of_what_was_read_before():
    """As far as it is known; a position at which nothing was read has none."""
    watch = FetchWatch({"t": TOPIC_ID})
    newest = {1: (4, 18)}
    epoch_at = {}
    for known in (None, PositionAnchor(6, 1)):
        watch.batches = {("t", 0): FetchedBatches(7, known)}
        ((_, ((_, _, offset, epoch_at[known], *_),), _),) = watch.asked(FETCH).prepare(newest).topics
        assert offset == 7
    assert list(epoch_at.values()) == [-1, 6]


def test_a_log_that_went_another_way_is_a_doubt_once():
    """The client's fetcher asks again and again; so does one whose epoch is not known."""
    watch = FetchWatch({"t": TOPIC_ID})
    assert watch.doubt == ""
    for _ in range(3):
        watch.diverged({("t", 0): EpochEnd(2, 520)})
    assert watch.disturbances == 1
    assert "t-0 has leader epoch 2 up to offset 520 only" in watch.doubt
    other = FetchWatch({"t": TOPIC_ID})
    other.refused(TopicPartition("t", 0))
    assert other.doubt == ""
    other.batches = {("t", 0): FetchedBatches(7, PositionAnchor(6, 1))}
    other.refused(TopicPartition("t", 0))
    assert "does not know leader epoch 6" in other.doubt


@pytest.mark.kafka
async def test_a_reader_at_another_epoch_than_the_logs_is_told_by_the_broker(cluster, new_topic, broker):
    """Nothing is given out, and asking again at the same position without an epoch goes on."""
    topic = await new_topic(1)
    source = TopicPartition(topic, 0)
    await write(cluster, topic, 3)
    ids = {topic: topic_id(broker.bootstrap_servers, topic)}
    reader = await cluster.reader(patient=True, topic_ids=ids)
    below = (await reader.batch_below(source, 2)).anchor
    assert await reader.epoch_end(source, below.leader_epoch) == (below.leader_epoch, 3)
    assert await reader.epoch_end(source, below.leader_epoch + 7) is None
    await reader.follow({source: 2}, {source: PositionAnchor(below.leader_epoch + 7, 1)})
    await until_async(lambda: polled(reader), lambda _: reader.doubt)
    await reader.follow({source: 2}, {source: below})
    found = await until_async(lambda: reader.poll(10, 100), bool)
    assert [record.offset for record in found[source]] == [2]
    assert reader.anchor_below(source, 3) == (await reader.batch_below(source, 3)).anchor
    assert reader.doubt == ""
    await reader.close()


@pytest.mark.parametrize("version", [11, 13])
async def test_a_fetch_that_is_refused_as_a_whole_is_an_error(version):
    """By name and by id; the client's fetcher looks at topics only, and there is none."""
    by_id = FetchById(FETCH, {"t": TOPIC_ID})
    kind = by_id.prepare({1: (0, version)}).RESPONSE_TYPE
    values = (0, UNKNOWN_SERVER_ERROR, 0, [], *([{}] if version == 13 else []))
    watch = FetchWatch({"t": TOPIC_ID})
    with pytest.raises(UnknownError):
        watch.answered(by_id.named(kind.decode(BytesIO(kind(*values).encode()))), {})
    assert watch.disturbances == 1


async def test_a_topic_is_missing_until_a_later_answer_has_it():
    """Since the first answer that said so."""
    watch = FetchWatch({})
    assert watch.answered(answer(3), {})
    since = watch.missing_since
    await asyncio.sleep(0)
    watch.answered(answer(3), {})
    assert watch.missing_since == since
    assert not watch.answered(answer(0), {})
    assert watch.missing_since is None


@pytest.mark.kafka
async def test_nothing_of_another_topic_of_the_same_name_is_given_out(cluster, new_topic, broker):
    """A reader by id that waits at its position is not answered by a longer log that takes the name; by name it is."""
    topic = await new_topic(1)
    source = TopicPartition(topic, 0)
    await write(cluster, topic, 3)
    ids = {topic: topic_id(broker.bootstrap_servers, topic)}
    by_id = await cluster.reader(patient=True, topic_ids=ids)
    by_name = await cluster.reader(patient=True)
    for reader in (by_id, by_name):
        await reader.follow({source: 0})
        count = 0
        while count < 3:
            count += len((await reader.poll(10, 100)).get(source, ()))
    await asyncio.to_thread(recreate, broker.bootstrap_servers, topic, 1)
    await write(cluster, topic, 10)
    before = by_id.disturbances
    await until_async(lambda: by_name.poll(10, 100), bool)
    assert by_name.position(source) > 3
    await until_async(lambda: polled(by_id), lambda _: by_id.disturbances > before + 1)
    assert by_id.position(source) == 3
    for reader in (by_id, by_name):
        await reader.close()


@pytest.mark.kafka
async def test_what_was_gone_before_it_was_read_ends_however_often_the_client_is_renewed(
    new_topic, broker, monkeypatch
):
    """Another topic has the name: a client without progress lives for less than a broker may lag."""
    monkeypatch.setattr("snapreplay.service.kafka.reader.LAG_SECONDS", 4.0)
    impatient = hasty(broker.bootstrap_servers, 200)
    topic = await new_topic(1)
    servers, ids = broker.bootstrap_servers, {topic: topic_id(broker.bootstrap_servers, topic)}
    await asyncio.to_thread(recreate, servers, topic, 1)
    reader = KafkaReader(impatient, read_committed=True, large=False, topic_ids=ids)
    await reader.start()
    with pytest.raises(TopicGone, match=ids[topic]):
        async with within(60):
            await anext(aiter(reader.read(TopicPartition(topic, 0), 0, 3)))
    assert reader.disturbances > 1, "it was renewed"
    await reader.close()


async def polled(reader):
    """Nothing may come."""
    found = await reader.poll(10, 100)
    assert not found


async def write(cluster, topic, count):
    """Records of our own, each a batch."""
    appender = await cluster.appender()
    for number in range(count):
        await appender.append(LogRecord(topic, str(number).encode()), 0)
    await appender.close()
