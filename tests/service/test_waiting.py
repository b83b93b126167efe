"""Tests of what a program may wait for, against a real broker."""

import asyncio
import re

import pytest
from confluent_kafka import Producer

from snapreplay.errors import NotCaughtUp, ServiceClosed
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.service import Service
from tests.support import apps, inside
from tests.support.deadlines import scaled
from tests.support.stage import settings_for, until

pytestmark = pytest.mark.kafka


async def test_caught_up_is_all_that_was_there_when_it_was_asked(stage, unique, monkeypatch):
    """Every partition LIVE and committed up to the end, markers of the producer's transactions included."""
    here = await stage(apps.ledger(unique("caught")), partitions=2)
    await here.feed(200)
    in_a_transaction(here.bootstrap_servers, here.app.inputs[0].name)
    async with here.running() as service:
        await service.wait_caught_up(scaled(30))
        assert sum(each["n"] for view in service.views().values() for each in view.values()) == 201
        await service.wait_caught_up(scaled(5))
        idle = asyncio.Semaphore(0)

        async def nothing(*_):
            idle.release()
            await asyncio.sleep(0.05)
            return []

        monkeypatch.setattr(Fetcher, "next_batch", nothing)
        for _ in range(4):  # the last real fetches are over
            await idle.acquire()
        await here.feed(2)
        assert re.search(r"partition \d: payments-\S+ is at \d+ of \d+", await not_caught_up(service))
        waiting = asyncio.create_task(service.wait_caught_up(scaled(30)))
        while not idle.locked():
            await idle.acquire()
        for _ in range(4):  # it has begun to wait
            await idle.acquire()
    with pytest.raises(ServiceClosed):  # a stopped service has no partition that is behind
        await waiting
    for late in (service.wait_live, service.wait_caught_up, service.trigger_snapshot):
        with pytest.raises(ServiceClosed):
            await late()


async def not_caught_up(service):
    """Return what is said when the time is over. It is longer if it was over before anybody knew where inputs end."""
    seconds, said = 0.5, " is live"
    while " is live" in said:
        with pytest.raises(NotCaughtUp) as told:
            await service.wait_caught_up(seconds)
        said, seconds = str(told.value), 4 * seconds
    return said


async def test_who_waits_for_a_cluster_hears_why_and_when_it_is_over(unique, closed_port):
    """The errors name the broker that does not answer, and the stop."""
    service = Service(apps.ledger(unique("unknown")), settings_for(f"127.0.0.1:{closed_port}"))
    await service.start()
    await until(lambda: inside.control(service).unreachable_reason, "no broker answers")
    with pytest.raises(NotCaughtUp, match=rf"no partition is assigned; .*127\.0\.0\.1:{closed_port}"):
        await service.wait_caught_up(0.5)
    waiting = [asyncio.create_task(each()) for each in (service.wait_live, service.wait_caught_up)]
    await asyncio.sleep(0)  # both begin to wait
    await service.stop()
    for each in waiting:
        with pytest.raises(ServiceClosed):
            await each


def in_a_transaction(bootstrap_servers, topic):
    """One payment, whose log then ends with a marker."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b'{"amount": 1}', b"k1", partition=1)
    producer.commit_transaction()
