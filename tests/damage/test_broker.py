"""Damage where Kafka has a part in it: the table's rows on a real broker, foreign records, DeleteRecords in the middle
of a restore, and a service as an operator runs it. An app's two topics are written again as an edit left them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app as command_line
from snapreplay.api.server import HttpServer
from snapreplay.service.live import pace
from snapreplay.service.recovery.follower import Follower
from snapreplay.service.topics import snapshots
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import Increment
from tests.damage.edits import Slot, of_kind
from tests.damage.gallery import INCREMENTS, SNAPSHOTS, Case, Trim, ends, table, told
from tests.damage.memory import book, padded
from tests.damage.test_gallery import CASES, DOCUMENT
from tests.support.reference import Read
from tests.support.stage import Stage, processed, snapshot
from tests.support.tampering import bring_back, trim
from tests.support.waiting import eventually

# Of those that do not depend on gaps: topics that are written again have none.
QUICK = (
    "chunk of the newest snapshot, any byte flipped",
    "manifest of the newest snapshot, cut, emptied, lengthened",
    "changes of the last batch, would fill the memory",
    "increment behind the newest snapshot, any byte flipped",
    "last increment, of a newer format",
    "the same, and T-ZengLiang trimmed",
    "both topics, trimmed below what the newest snapshot needs",
    "T-ZengLiang, trimmed to its end",
)


class Damaged:
    """An app with the past that `memory.world` has. `prepare` first."""

    def __init__(self, bootstrap_servers: str, app_id: str) -> None:
        self.here = Stage(bootstrap_servers, padded(app_id), snapshot={"chunk_bytes_max": 10_000})
        self.written: dict[str, list[Slot]] = {}
        self.pointed: list[str] = []

    async def prepare(self) -> Damaged:
        await self.here.prepare()
        async with self.here.running() as service:
            for third in range(3):
                for _ in range(2):
                    await self.here.feed(10)
                    await processed(service, {0: self.here.sent})
                if third < 2:
                    await snapshot(service)
        for part in (INCREMENTS, SNAPSHOTS):
            (records,) = await self.here.read(self.topic(part))
            self.written[part] = [Slot(r.offset, r.key, r.value, r.headers) for r in records]
        last = decode(of_kind(self.written[INCREMENTS], RecordKind.INCREMENT)[-1].value or b"")
        assert isinstance(last, Increment)
        self.pointed = [pointer.snapshot_id for pointer in last.pointers]
        return self

    def topic(self, part: str) -> str:
        return f"{self.here.app.app_id}-{part}"

    async def rewrite(self, edits: Any) -> None:
        """Both topics as they were, with these edits made."""
        slots = {part: [Slot(s.offset, s.key, s.value, s.headers) for s in were] for part, were in self.written.items()}
        trims = []
        for part, edit in edits:
            if isinstance(edit, Trim):
                kept = of_kind(slots[part], edit.kind)[edit.number].offset if edit.kind else -1
                trims.append((part, kept))
            else:
                edit(slots[part])
        for part, left in slots.items():
            records = [Read(slot.offset, slot.key, slot.value, slot.headers) for slot in left]
            servers, topic = self.here.bootstrap_servers, self.topic(part)
            await asyncio.to_thread(bring_back, servers, topic, records)
        for part, offset in trims:
            trim(self.here.bootstrap_servers, self.topic(part), 0, offset)

    async def outcome(self, case: Case) -> str:
        """Return how a service that is started then ends up; `restore-status` ends with 0 where it is LIVE, else with
        1."""
        http = HttpServer(on_bound=lambda _: None)
        async with self.here.started(http=http, changelog={"enabled": case.changes}) as service:
            host, port = service.http_address or ("", 0)
            code = await asyncio.to_thread(_watch, f"http://{host}:{port}")
            (status,) = service.restore_status()
            restore: Any = status.restore
            if code == 0:
                await self.here.assert_exactly_once(service, rule=book)
                assert restore.proof.equal
        assert code == (0 if status.phase == "live" else 1)
        assert case.says in told(restore, status.error)
        return ends(restore, self.pointed, status.error.kind if status.error else None)


def _watch(url: str) -> int:
    """Ask in a thread until it is LIVE or FAILED, as a user does in another process."""
    assert threading.current_thread() is not threading.main_thread()
    codes: list[int] = []

    def ended() -> bool:
        codes.append(CliRunner().invoke(command_line, ["restore-status", "--url", url]).exit_code)
        return codes[-1] in (0, 1)

    eventually(ended, "LIVE or FAILED")
    return codes[-1]


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle partition looks for news every 10 ms, and no leader is stale."""
    monkeypatch.setattr(pace, "IDLE_POLL_MS", 10)
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 0.1)


@pytest.fixture(scope="module")
async def damaged(broker: Any, unique: Any) -> Damaged:
    """One past for all tests; each damages a copy of it."""
    return await Damaged(broker.bootstrap_servers, unique("damage")).prepare()


@pytest.mark.parametrize("name", [QUICK[0], *(pytest.param(each, marks=pytest.mark.whole) for each in QUICK[1:])])
async def test_on_kafka_damage_ends_as_the_document_says(damaged, name):
    """The first variant; asked with `restore-status`, whose exit code says it, too."""
    case = CASES[name]
    await damaged.rewrite(case.edits[0])
    end = await damaged.outcome(case)
    assert (case.record, case.damage, end) in table(DOCUMENT.read_text())


async def restored(damaged: Damaged) -> Any:
    """The recovery of a service that is started and stopped; the state is right."""
    async with damaged.here.running() as service:
        await damaged.here.assert_exactly_once(service, rule=book)
        return service.restore_status()[0].restore


async def test_snapshots_trimmed_while_one_is_loaded_are_passed_over(damaged, monkeypatch):
    """Between manifest and chunks all of T-QuanLiang is deleted: from genesis, and the status says why."""
    await damaged.rewrite(())
    topic = damaged.topic(SNAPSHOTS)
    end_offset = damaged.written[SNAPSHOTS][-1].offset + 1
    load_state = snapshots.load_state

    async def trimmed_first(*arguments: Any) -> None:
        await asyncio.to_thread(trim, damaged.here.bootstrap_servers, topic, 0, end_offset)
        await load_state(*arguments)

    monkeypatch.setattr("snapreplay.service.recovery.executor.load_state", trimmed_first)
    restore = await restored(damaged)
    assert restore.snapshot is None
    assert restore.fallback_from == damaged.pointed[0]
    assert restore.proof.equal


async def test_increments_trimmed_while_they_are_walked_fail_by_name(damaged, monkeypatch):
    """Nothing leads around them: FAILED with both offsets, never a state without them."""
    await damaged.rewrite(())
    topic = damaged.topic(INCREMENTS)
    kept = damaged.written[INCREMENTS][-1].offset
    advance = Follower.advance

    async def trimmed_first(*arguments: Any) -> Any:
        await asyncio.to_thread(trim, damaged.here.bootstrap_servers, topic, 0, kept)
        return await advance(*arguments)

    monkeypatch.setattr(Follower, "advance", trimmed_first)
    status = await damaged.here.failure()
    assert status.error.kind == "NoRestoreMode"
    assert str(kept) in status.error.message
