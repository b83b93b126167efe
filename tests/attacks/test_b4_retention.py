"""Attack B4: the input behind a live partition is deleted while everything is green, and the next crash finds no way
back; or the input is compacted, and a replay sees fewer records than there were. And the other way round: what was
deleted was nothing but transaction markers, and a restart takes it for lost records."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import Producer

from snapreplay.service.clock import time_of, wall_ms, wall_time
from snapreplay.service.control.status import BlockedTopic
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.live.recoverability_monitor import RecoverabilityMonitor
from tests.support import apps
from tests.support.stage import Stage, snapshot, until
from tests.support.tampering import trim

LEAN = {"changelog": {"enabled": False}}


@pytest.fixture(autouse=True)
def looks(monkeypatch):
    """The monitor looks ten times a second. Return one entry for each look that has ended."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.1)
    ended: list[Any] = []
    look = RecoverabilityMonitor._look

    async def noted(self: RecoverabilityMonitor) -> None:
        await look(self)
        ended.append(self)

    monkeypatch.setattr(RecoverabilityMonitor, "_look", noted)
    return ended


def status(service: Any) -> Any:
    return service.restore_status()[0]


async def looked_at(service: Any) -> None:
    await until(lambda: status(service).recoverable is not None, "looked at")


async def two_more(looks: list[Any]) -> None:
    """Wait for a look that has begun since, and for the one after it."""
    before = len(looks)
    await until(lambda: len(looks) > before + 2, "looks")


async def past(here: Stage, service: Any) -> None:
    """Snapshots at 20 and 40, position 60."""
    for _ in range(2):
        await here.process(service, 20)
        await snapshot(service)
    await here.process(service, 20)
    await looked_at(service)


def reasons(service: Any) -> list[str]:
    return [each.reason for each in service.control.document().snapshots]


async def cut(here: Stage, before_offset: int) -> None:
    await asyncio.to_thread(trim, here.bootstrap_servers, here.input, 0, before_offset)


async def test_b4_a_snapshot_comes_before_the_input_it_needs_is_gone(stage, unique, looks):
    """Lean mode: the input begins within a quarter of what the oldest kept snapshot needs, so a new one is written at
    once, without being asked; the partition was recoverable all the time, and is after the next cut."""
    here = await stage(apps.ledger(unique("near")), **LEAN)
    async with here.running() as service:
        await past(here, service)
        assert status(service).recoverable is True
        assert "retention" not in reasons(service)
        await cut(here, 15)
        await until(lambda: reasons(service)[0] == "retention", "a snapshot")
        await until(lambda: service.control.document().snapshots[0].state == "pointed", "its pointer")
        assert status(service).recoverable is True
        written = service.control.document().snapshots[0].snapshot_id
        await cut(here, 60)
        await two_more(looks)
        assert status(service).recoverable is True
    async with here.running() as service:
        assert status(service).restore.snapshot.snapshot_id == written
        assert service.view(0)["k0"]["n"] == 3


async def test_b4_what_an_open_transaction_holds_back_is_named(stage, unique):
    """Somebody's transaction stays open, records pile up behind it and none comes: not idle, but blocked. In our
    own log commits continue, but the next owner could not read them: recoverable later, and named."""
    here = await stage(apps.ledger(unique("blocked")))
    topic = here.input
    async with here.running(records=5) as service:
        before_ms = wall_ms()
        foreign = await asyncio.to_thread(left_open, here.bootstrap_servers, topic)
        await here.feed(10)
        await until(
            lambda: any(each.held_by and each.offsets == 11 for each in status(service).blocked_by_open_transaction),
            "named, with all that wait",
        )
        (blocked,) = status(service).blocked_by_open_transaction
        assert blocked == BlockedTopic(topic, 5, 11, blocked.held_by)
        assert (blocked.held_by.transactional_id, blocked.held_by.start_offset) == (f"foreign-{topic}", 5)
        assert blocked.held_by.producer_id >= 0
        assert time_of(before_ms - 1) < blocked.held_by.started_at < wall_time()
        assert blocked.held_by.timeout_seconds == 60
        await until(lambda: status(service).inputs[0].lag_to_high_watermark == 11, "the lag behind the transaction")
        assert status(service).inputs[0].lag == 0
        assert status(service).recoverable is True
        await asyncio.to_thread(foreign.abort_transaction, 20)
        await here.all_processed(service)
        await until(lambda: not status(service).blocked_by_open_transaction, "over")
        assert status(service).inputs[0].lag == status(service).inputs[0].lag_to_high_watermark
        await until(lambda: status(service).inputs[0].position == 17, "past the marker: nothing more is committed")

        own = here.increments
        pinning = await asyncio.to_thread(left_open, here.bootstrap_servers, own)
        await until(lambda: status(service).blocked_by_open_transaction, "named")
        (blocked,) = status(service).blocked_by_open_transaction
        assert (blocked.topic, blocked.offsets) == (own, 1)
        await asyncio.to_thread(pinning.abort_transaction, 20)
        await until(lambda: not status(service).blocked_by_open_transaction, "over")


def left_open(servers: str, topic: str, count: int = 1) -> Producer:
    """A transaction with so many records."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"foreign-{topic}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, key=b"k0", value=b'{"amount": %d}' % number, partition=0)
    assert producer.flush(20) == 0
    return producer


def in_a_transaction(servers: str, topic: str, count: int) -> None:
    """Write as an app of ours writes its outputs: the offset behind the last record is a commit marker."""
    left_open(servers, topic, count).commit_transaction(20)


async def test_b4_a_marker_behind_the_last_record_is_not_missed(stage, unique):
    """All was processed, the input went quiet, retention deleted all of it, the marker included: the position moved
    past the marker in time, so the next start finds nothing missing."""
    here = await stage(apps.ledger(unique("marker")))
    topic = here.input
    await asyncio.to_thread(in_a_transaction, here.bootstrap_servers, topic, 5)
    async with here.running() as service:
        await until(lambda: status(service).inputs[0].position == 6, "past the marker")
    async with here.running(restore={"mode": "replay"}) as service:
        assert status(service).restore.proof.equal, "a batch of no record is replayed"
    await cut(here, 6)
    async with here.running() as service:
        assert service.view(0)["k0"]["n"] == 5
        await asyncio.to_thread(in_a_transaction, here.bootstrap_servers, topic, 5)
        await until(lambda: status(service).inputs[0].position == 12, "past both")
        assert service.view(0)["k0"]["n"] == 10
