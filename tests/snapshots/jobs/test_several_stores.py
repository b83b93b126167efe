"""A state of three stores, with timers and entries that expire, through all of its life on a real broker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapreplay.service.config.settings import load_settings
from snapreplay.snapshots.jobs.compaction import Outcome
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit, compact
from tests.chaos.processes import Place, Slot
from tests.chaos.timeline import Timeline
from tests.checker import load, verify
from tests.checker.test_real import DEADLINE_S, prepared, until
from tests.support.deadlines import scaled

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(300)]

SETTINGS = {"snapshot.every_seconds": 0, "batch.records_max": 50}
APP = 'from tests.checker.app import make\n\napp = make("{app_id}")\n'
HOLDS = 0.4


class Life:
    """The life of one partition: fed, killed, restored."""

    def __init__(self, servers: str, app_id: str, folder: Path) -> None:
        self.servers, self.app_id = servers, app_id
        self.place = Place(servers, app_id, SETTINGS, folder, Timeline())
        self.slot = Slot("p0", self.place)
        self.sent = 0

    def fed(self, count: int) -> None:
        """That many records more are committed."""
        self.sent += count
        load.send(self.servers, self.app_id, 1, self.sent, count, holds=HOLDS)
        until(lambda: processed(self.slot, self.sent))

    def restored_by(self, mode: str) -> Any:
        """SIGKILL; the next process has proved the state, with all stores and timers."""
        self.slot.kill()
        self.slot.start(restore__mode=mode)
        (status,) = got(self.slot, "/restore-status", all_live)["partitions"]
        assert (status["mode"], status["proof"]["equal"]) == (mode, True)
        assert status["fallback_reason"] is None
        return status


def all_live(status: Any) -> bool:
    return [each["phase"] for each in status["partitions"]] == ["live"]


def got(slot: Slot, path: str, holds: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as wanted; a suspended process gives none."""
    found: list[Any] = []

    def is_right() -> bool:
        found[:] = [slot.process.get(path)]
        return holds(found[0])

    until(is_right)
    return found[0]


def processed(slot: Slot, count: int) -> bool:
    """LIVE, and that many records of both inputs together are committed."""
    items = (slot.process.get("/api/v1/partitions") or {"items": []})["items"]
    return count <= sum(int(each["position"]) for item in items for each in item["inputs"])


def judged(slot: Slot, offset: int) -> Any:
    """The operation, ended."""
    url = f"{slot.process.url}/api/v1/partitions/0/adopt"
    answer = slot.process.http.post(url, json={"manifest_offset": offset}, timeout=scaled(30)).raise_for_status()
    return got(slot, f"/api/v1/operations/{answer.json()['id']}", lambda found: found["state"] != "running")


async def test_stores_timers_and_expiry_survive_kills_compaction_and_audits(
    spark: Any, broker: Any, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Restored by changes and by replay, folded by Spark, adopted, restored from there, replayed by Spark: each finds
    the same state. The checker, which shares no code with any of them, finds it, too."""
    servers, app_id = broker.bootstrap_servers, unique("stores")
    await prepared(broker, app_id, 1)
    settings = load_settings({"kafka.bootstrap.servers": servers})
    life, program = Life(servers, app_id, tmp_path), tmp_path / "stores_app.py"
    program.write_text(APP.format(app_id=app_id))

    def story() -> None:
        try:
            life.slot.start()
            for _ in range(3):
                life.fed(100)
            assert life.restored_by("changes")["proof"]["batches_compared"] > 3
            life.fed(100)
            assert life.restored_by("replay")["proof"]["batches_compared"] > 4
            life.fed(100)
            (proposal,) = compact(settings, app_id).partitions
            assert proposal.outcome is Outcome.PROPOSED, proposal
            adopted = judged(life.slot, proposal.manifest_offset)
            assert adopted["state"] == "succeeded", adopted
            life.fed(100)
            for mode in ("changes", "replay"):
                restored = life.restored_by(mode)
                assert restored["snapshot"]["snapshot_id"] == proposal.snapshot_id
            levels = (Level.CHANGES, Level.REPLAY)
            reports = [audit(settings, app_id, level, str(program)) for level in levels]
            for report in reports:
                assert report.findings == []
                assert report.checked["batches_proven"] == report.checked["increments"]
            assert reports[-1].checked["records_replayed"] == life.sent
            outcomes = life.place.outcomes
            verdict = verify(servers, app_id, outcomes=outcomes, deadline_seconds=DEADLINE_S)
            assert verdict.good, str(verdict)
            for looked_at in ("timers fired", "entries expired", "digests of several stores"):
                assert verdict.counts[looked_at] > 0, str(verdict)
            assert verdict.counts["snapshots checked"] == 1
        finally:
            life.slot.end_all()

    await asyncio.to_thread(story)
