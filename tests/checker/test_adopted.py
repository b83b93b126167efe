"""A proposal on a real broker, from a job that has another Kafka client to its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Log

from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.chaos.processes import Place, Slot
from tests.chaos.timeline import Timeline
from tests.checker import load, verify
from tests.checker.test_real import DEADLINE_S, prepared, until
from tests.support.entries import read_entry
from tests.support.proposals import folded, propose

pytestmark = pytest.mark.kafka


async def test_an_adopted_snapshot_is_restored_from_after_a_kill(
    broker: Any, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A job writes into the real topics. The owner rejects a forged one, adopts the true one, and is killed. The next
    process starts from the job's snapshot; all rules of the log hold."""
    app_id, servers = unique("adopted"), broker.bootstrap_servers
    await prepared(broker, app_id, 1)

    def story() -> None:
        place = Place(servers, app_id, {"snapshot.every_seconds": 0}, tmp_path, Timeline())
        slot = Slot("p0", place)
        try:
            slot.start()
            load.send(servers, app_id, 1, 3, 500)
            until(partial(processed, slot, 500))
            job = RealJob(servers, app_id)
            forged = judged(slot, job.propose(forge=lambda parts: parts.pop()))
            assert forged["state"] == "failed"
            assert forged["parts"][0]["detail"].startswith("entries_differ: ")
            load.send(servers, app_id, 1, 4, 100)
            adopted = judged(slot, job.propose())
            assert adopted["state"] == "succeeded", adopted
            load.send(servers, app_id, 1, 5, 100)
            until(partial(processed, slot, 700))
            slot.kill()
            slot.start()
            until(lambda: slot.process.phases() == {0: "live"})
            (restored,) = slot.process.get("/restore-status")["partitions"]
            assert restored["snapshot"]["snapshot_id"] == adopted["parts"][0]["snapshot_id"]
            assert restored["proof"]["equal"]
            verdict = verify(servers, app_id, outcomes=place.outcomes, deadline_seconds=DEADLINE_S)
            assert verdict.good, str(verdict)
            assert verdict.counts["snapshots checked"] == 1
        finally:
            slot.end_all()

    await asyncio.to_thread(story)


def processed(slot: Slot, count: int) -> bool:
    """LIVE, and that many records of both inputs together are committed."""
    items = (slot.process.get("/api/v1/partitions") or {"items": []})["items"]
    return count <= sum(int(each["position"]) for item in items for each in item["inputs"])


def judged(slot: Slot, offset: int) -> Any:
    """The operation, ended."""
    url = f"{slot.process.url}/api/v1/partitions/0/adopt"
    answer = slot.process.http.post(url, json={"manifest_offset": offset}).raise_for_status()
    path = f"/api/v1/operations/{answer.json()['id']}"
    until(lambda: slot.process.get(path)["state"] != "running")
    return slot.process.get(path)


class RealJob:
    """Folds and writes with another Kafka client."""

    def __init__(self, servers: str, app_id: str) -> None:
        self._servers, self._app_id = servers, app_id

    def propose(self, **forged: Any) -> int:
        """The state after the last batch; the manifest's offset."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "job"})
        place = Log(f"{self._app_id}-increments", 0)
        end = consumer.get_watermark_offsets(place, DEADLINE_S)[1]
        place.offset = 0
        consumer.assign([place])
        records: list[tuple[Any, Any]] = []
        while not records or consumer.position([place])[0].offset < end:
            records += [(m.offset(), m.value()) for m in consumer.consume(500, 0.2)]
        consumer.close()
        increments = [(at, v) for at, v in records if kind_of(v) is RecordKind.INCREMENT]
        at, last = increments[-1][0], read_entry(increments[-1][1])
        entries = folded((value for _, value in records), last.batch)
        return propose(last, at, entries, self._append, **forged)

    def _append(self, value: bytes, headers: Any) -> int:
        producer, got = Producer({"bootstrap.servers": self._servers}), list[Any]()
        producer.produce(
            f"{self._app_id}-snapshots",
            value,
            partition=0,
            headers=list(headers),
            on_delivery=lambda error, record: got.append(-1 if error else record.offset()),
        )
        producer.flush(DEADLINE_S)
        return int(got[0])
