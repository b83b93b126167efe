"""Batches that are damaged on the broker's disk: a byte of a real log, flipped under a real broker."""

import struct
from pathlib import Path

import pytest

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.errors import DamagedError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.reader import ATTEMPTS_MAX
from snapreplay.service.ports import LogRecord, NewTopic, TopicPartition
from snapreplay.service.topics.reading import reading
from tests.support.deadlines import within
from tests.support.steady import KEEPS_LEADERS

pytestmark = pytest.mark.kafka

BATCH, BATCHES = 50, 6


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A broker of one's own, and where its data are."""
    data_dir = tmp_path_factory.mktemp("damaged")
    with LocalBroker(data_dir=data_dir, properties=KEEPS_LEADERS) as broker:
        yield broker, data_dir


@pytest.fixture
async def cluster(disk):
    return KafkaCluster(Settings(kafka={"bootstrap.servers": disk[0].bootstrap_servers}))


def segment(data_dir: Path, source: TopicPartition) -> Path:
    (path,) = data_dir.rglob(f"{source}/00000000000000000000.log")
    return path


def flip(path: Path, marker: bytes) -> None:
    """Flip one bit of these bytes, as a disk may lose it; in place, so the broker's file stays this one."""
    at = path.read_bytes().index(marker)
    overwrite(path, at, bytes([marker[0] ^ 1]))


def overwrite(path: Path, at: int, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def flip_length(path: Path, number: int) -> None:
    """Flip the sign of the length of the n-th batch of a log; markers count, too."""
    log, at = path.read_bytes(), 0
    for _ in range(number):
        at += 12 + struct.unpack_from(">i", log, at + 8)[0]
    overwrite(path, at + 8, bytes([log[at + 8] ^ 0x80]))


async def written(cluster, topic):
    """Six batches of fifty records and their markers; the values by offset."""
    await cluster.create_topics([NewTopic(topic, 1)])
    producer = await cluster.fence(f"{topic}-writer")
    values: dict[int, bytes] = {}
    for number in range(BATCHES):
        records = [LogRecord(topic, b"record %d-%d." % (number, n)) for n in range(BATCH)]
        offsets = await producer.commit(0, [], records)
        values |= dict(zip(offsets, (r.value for r in records), strict=True))
    await producer.discard()
    return values


async def read_all(cluster, source):
    """(values by offset, the error that ended it)."""
    found: dict[int, bytes | None] = {}
    async with reading(cluster) as reader:
        try:
            async for records in reader.read(source, *await reader.bounds(source)):
                assert not found.keys() & {r.offset for r in records}, "given out twice"
                found |= {record.offset: record.value for record in records}
        except DamagedError as error:
            return found, error
    return found, None


async def test_all_before_a_damaged_batch_is_read_and_it_is_named(cluster, disk, unique):
    """Not one record before it is lost, none behind it is given out, and it ends after some attempts."""
    source = TopicPartition(unique("damaged"), 0)
    values = await written(cluster, source.topic)
    flip(segment(disk[1], source), b"record 3-25.")
    found, error = await read_all(cluster, source)
    first = next(offset for offset, value in values.items() if value == b"record 3-0.")
    assert found == {offset: value for offset, value in values.items() if offset < first}
    assert isinstance(error, DamagedError)
    assert (error.facts["topic"], error.facts["partition"]) == source
    assert first - 1 <= error.facts["offset"] <= first, "the marker before it has an offset, too"
    assert f"{ATTEMPTS_MAX} times" in error.message
    leader = f"broker 1 at {disk[0].bootstrap_servers}"
    assert f"the copy of the leader, {leader}, is damaged" in error.hint


@pytest.mark.parametrize(("number", "before", "markers"), [(6, 3, 1), (7, 4, 0)], ids=["records", "marker"])
async def test_a_batch_whose_length_is_damaged_is_named(cluster, disk, unique, number, before, markers):
    """In the middle of an answer, and by the broker right at the position. The marker before it has an offset, too."""
    source = TopicPartition(unique("length"), 0)
    values = await written(cluster, source.topic)
    flip_length(segment(disk[1], source), number)
    found, passed, error = await follow_all(cluster, [source])
    assert found[source] == list(values.values())[: before * BATCH]
    assert (error.facts["topic"], error.facts["partition"]) == source
    last = list(values)[before * BATCH - 1]
    assert passed[source] == error.facts["offset"] == last + 1 + markers


async def test_a_damaged_input_among_several_loses_nothing_of_the_others(cluster, disk, unique):
    """The client forgets what it took of the others in the same call; the reader does not. In which order the client
    meets them is chance, hence several readers."""
    good = [TopicPartition(unique("good"), 0) for _ in range(4)]
    bad = TopicPartition(unique("bad"), 0)
    values = await written(cluster, bad.topic)
    for each in good:
        await written(cluster, each.topic)
    flip(segment(disk[1], bad), b"record 0-25.")
    for _ in range(4):
        found, passed, error = await follow_all(cluster, [*good, bad])
        assert error.facts["topic"] == bad.topic
        for source in good:
            assert found[source] == [v for offset, v in values.items() if offset < passed[source]]


async def follow_all(cluster, sources):
    """(values, the position before the last poll, each by source; the error that ended it)."""
    found: dict[TopicPartition, list[bytes | None]] = {each: [] for each in sources}
    passed: dict[TopicPartition, int] = {}
    async with reading(cluster) as reader, within(20):
        await reader.follow(dict.fromkeys(sources, 0))
        with pytest.raises(DamagedError) as ended:  # noqa: PT012 - whichever poll it is
            while True:
                passed = {each: reader.position(each) for each in sources}
                for source, records in (await reader.poll(1000, 100)).items():
                    found[source] += [record.value for record in records]
    return found, passed, ended.value
