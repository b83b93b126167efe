"""Many FAILED partitions in one process, on a real broker."""

import asyncio

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from snapreplay.service.kafka import shared
from snapreplay.service.recovery import memory
from snapreplay.service.topics import reading
from tests.support import apps
from tests.support.kafka import sockets_to
from tests.support.stage import until
from tests.support.wire import HOST, Proxy

PARTITIONS = 20
IDLE_MAX = 8
"""Connections that are kept: fewer than partitions."""
FETCH, LIST_OFFSETS = 1, 2
LOOKS = 10


def trim(servers, topic, before):
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(before)]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for done in admin.delete_records(places).values():
        done.result(30)


@pytest.mark.whole
async def test_twenty_that_wait_for_another_process_ask_as_one(stage, unique, monkeypatch):
    """Their logs have lost what the last increment needs. Each looks every second whether somebody has written there
    since; they share the questions and the connection, and read nothing."""
    here = await stage(apps.ledger(unique("many")), partitions=PARTITIONS)
    await here.send((f"{number}:k", {"amount": 1}) for number in range(PARTITIONS))
    async with here.running() as service:
        await here.all_processed(service)
    last = [records[-1].offset for records in await here.read(here.increments)]
    await asyncio.to_thread(trim, here.bootstrap_servers, here.increments, last)
    monkeypatch.setattr(shared, "IDLE_MAX", IDLE_MAX)
    monkeypatch.setattr(memory, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.5)  # no leader is stale here
    proxy = Proxy(here.bootstrap_servers)
    async with proxy.through(), here.started() as service:

        def failed():
            return [each.error.kind for each in service.restore_status() if each.phase == "failed"]

        await until(lambda: len(failed()) == PARTITIONS, "all FAILED", 60)
        assert {*failed()} == {"NoUsableSnapshot"}

        async def some_looks() -> None:
            asked = proxy.seen[LIST_OFFSETS]
            await until(lambda: proxy.seen[LIST_OFFSETS] > asked + 2 * LOOKS)

        for _ in range(2):  # at first each reads its log once
            await some_looks()
        fetched = proxy.seen[FETCH]
        await some_looks()
        assert proxy.seen[FETCH] - fetched < LOOKS
        assert len(sockets_to(f"{HOST}:{proxy._wire.port}")) <= IDLE_MAX + 8, (
            "those that a recovery has left, and a few"
        )
