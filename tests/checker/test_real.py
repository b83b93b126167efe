"""The checker judges what the real service really wrote: through kills, trims and restores."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from snapreplay.service.control.operations import TriggerSnapshot
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.recovery.driver import RecoveryDriver
from tests.checker import Check, app, load, outcomes, verify
from tests.support.deadlines import scaled
from tests.support.stage import Stage
from tests.support.stage import until as stage_until
from tests.support.tampering import log_start
from tests.support.waiting import eventually

DEADLINE_S = scaled(60.0)
BEGAN_MS = 1_700_000_000_000


async def prepared(broker: Any, app_id: str, partitions: int, **tables: Any) -> Stage:
    return await Stage(broker.bootstrap_servers, app.make(app_id), partitions, **tables).prepare()


until = partial(eventually, seconds=60.0)


@pytest.mark.whole
async def test_two_lives_with_trimmed_logs_are_found_good(
    broker: Any, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that a healthy service writes holds, and the checker has really looked at it."""
    app_id, journal = unique("checked"), tmp_path / "outcomes.jsonl"
    monkeypatch.setattr(KafkaCluster, "fence", KafkaCluster.fence)  # all are put back at the end
    monkeypatch.setattr(RecoveryDriver, "recover", RecoveryDriver.recover)
    monkeypatch.setattr(StatusBoard, "publish_standby", StatusBoard.publish_standby)
    outcomes.install(journal)

    def trimmed() -> bool:
        return all(log_start(broker.bootstrap_servers, stage.increments, number) for number in range(2))

    stage = await prepared(broker, app_id, 2, snapshot={"every_records": 150}, batch={"records_max": 50})
    for seed in range(2):
        async with stage.running() as service:
            await asyncio.to_thread(load.send, broker.bootstrap_servers, app_id, 2, seed, 800)
            await stage.all_processed(service)
            # Those by their number may be slow, and end with the service: one of each life is waited for.
            taken = service.control.perform(TriggerSnapshot([0, 1], "test"))
            await stage_until(lambda: service.control.operation(taken.id).state != "running")  # noqa: B023 - awaited in its turn
            if seed == 1:
                await asyncio.to_thread(until, trimmed)
    verdict = await asyncio.to_thread(
        verify, broker.bootstrap_servers, app_id, outcomes=journal, deadline_seconds=DEADLINE_S
    )
    assert verdict.good, str(verdict)
    counts = verdict.counts
    assert counts["input records"] == counts["output records"] == 1600
    assert counts["restores reported"] >= 4  # one more when the group has taken a partition away for a moment
    assert counts["snapshots checked"] >= 4
    assert counts["reported commits checked"] > 0  # how many are trimmed is a matter of time
    assert counts["reported commits not checked, trimmed"] > 0
    # An owner that closes between its two trims leaves increments behind whose base is gone.
    by_changes = counts["digests checked by changes"]
    assert counts["digests checked by fold of the input"] >= by_changes > 0
    assert len(verdict.unchecked) == 2, verdict.unchecked


async def test_what_does_not_heal_is_a_violation(broker: Any, unique: Callable[[str], str]) -> None:
    """Unprocessed input and an open transaction are seen as what they are."""
    app_id, servers = unique("sick"), broker.bootstrap_servers
    await prepared(broker, app_id, 1)
    await asyncio.to_thread(load.send, servers, app_id, 1, 1, 10)

    def found() -> str:
        verdict = verify(servers, app_id, deadline_seconds=0.5)
        assert set(verdict.totals) == {Check.HEALED}, str(verdict)
        return "\n".join(map(str, verdict.violations))

    assert "processed up to 0, the input ends at" in await asyncio.to_thread(found)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{app_id}-foreign"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(f"accounts-{app_id}", b"left open", partition=0)
    producer.flush(DEADLINE_S)
    assert f"accounts-{app_id}-0: last stable offset 0, high watermark 1" in await asyncio.to_thread(found)
    producer.abort_transaction(DEADLINE_S)


async def test_an_app_that_keeps_a_hold_too_long_is_found(broker: Any, unique: Callable[[str], str]) -> None:
    """Its own digests and restores are consistent: only who lets time pass by another rule can tell."""
    app_id, servers = unique("late"), broker.bootstrap_servers
    await prepared(broker, app_id, 1)
    stage = Stage(servers, app.make(app_id, ttl_ms=app.TTL_MS + 10_000))
    async with stage.running() as service:
        records = [(b"k1", 0, 500), (b"k2", app.TTL_MS + 50, 50)]
        await asyncio.to_thread(at_times, servers, f"payments-{app_id}", records)
        await stage.all_processed(service)
    verdict = await asyncio.to_thread(verify, servers, app_id, deadline_seconds=DEADLINE_S)
    assert Check.STATE in verdict.totals, str(verdict)
    assert "entries expired" in verdict.counts


def at_times(servers: str, topic: str, records: list[tuple[bytes, int, int]]) -> None:
    """Key, milliseconds since the first one, how long it is held."""
    producer = Producer({"bootstrap.servers": servers})
    for key, at_ms, hold_ms in records:
        value = json.dumps({"amount": 1, "hold_ms": hold_ms})
        producer.produce(topic, value, key, partition=0, timestamp=BEGAN_MS + at_ms)
    assert producer.flush(DEADLINE_S) == 0
