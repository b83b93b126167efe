"""Damage where Kafka has a part in it: the table's rows on a real broker, foreign records, DeleteRecords in the middle
of a restore, and a service as an operator runs it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from snapreplay.service.live import pipeline
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.topics import snapshots, stale_leader
from snapreplay.snapshots.format.envelope import RecordKind
from tests.damage.edits import of_kind
from tests.damage.ends import row, table
from tests.damage.gallery import INCREMENTS, SNAPSHOTS, Case, cases
from tests.damage.memory import book
from tests.damage.onkafka import Damaged
from tests.damage.test_gallery import DOCUMENT
from tests.support.child import family
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka

# A record that is gone leaves a gap, and topics that are written again have none: there is a foreign record instead.
ON_KAFKA = {
    f"{case.record}, {case.damage}": case
    for case in cases()
    if case.changes and case.damage not in ("gone", "gone, or another program's in its place")
}
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


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle partition looks for news every 10 ms, and no leader is stale."""
    monkeypatch.setattr(pipeline, "IDLE_POLL_MS", 10)
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.1)


@pytest.fixture(scope="module")
async def damaged(broker: Any, unique: Any) -> Damaged:
    """One past for all tests; each damages a copy of it."""
    return await Damaged(broker.bootstrap_servers, unique("damage")).prepare()


async def ends_as_written(damaged: Damaged, case: Case, edits: Any) -> None:
    """The row is in the document."""
    await damaged.rewrite(edits)
    ended = await damaged.outcome(case)
    assert row(case.record, case.damage, ended, case.says) in table(DOCUMENT.read_text())


@pytest.mark.parametrize("name", QUICK)
async def test_on_kafka_damage_ends_as_the_document_says(damaged, name):
    """The first variant; asked with `restore-status --watch`, whose exit code is the row's."""
    await ends_as_written(damaged, ON_KAFKA[name], ON_KAFKA[name].edits[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ON_KAFKA)
async def test_on_kafka_every_variant_ends_as_the_document_says(damaged, name):
    """All that does not depend on gaps."""
    for edits in ON_KAFKA[name].edits:
        await ends_as_written(damaged, ON_KAFKA[name], edits)


async def test_foreign_records_between_all_of_ours_are_stepped_over(damaged):
    """Where the markers were there are foreign records now, in both topics; more of them behind the end."""
    await damaged.rewrite(())
    for part in (INCREMENTS, SNAPSHOTS):
        await damaged.here.send([("0:k", b"hello"), ("0:k", b"")] * 20, damaged.topic(part))
    restore = await restored(damaged)
    assert (restore.mode, restore.fallback_reason) == ("changes", None)
    assert restore.snapshot.snapshot_id == damaged.pointed[0]


async def restored(damaged: Damaged) -> Any:
    """The RestoreStatus of a service that is started and stopped; the state is right."""
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
    advance = RecoveryExecutor._advance

    async def trimmed_first(self: RecoveryExecutor, effect: Any) -> Any:
        await asyncio.to_thread(trim, damaged.here.bootstrap_servers, topic, 0, kept)
        return await advance(self, effect)

    monkeypatch.setattr(RecoveryExecutor, "_advance", trimmed_first)
    status = await damaged.here.failure()
    assert status.error.kind == "NoRestoreMode"
    assert str(kept) in status.error.message


async def test_a_process_with_a_failed_partition_runs_on_and_ends_with_0(damaged, tmp_path):
    """A FAILED partition is no crash: the process serves its status, and stops gracefully when told to."""

    def hide(slots: Any) -> None:
        last = of_kind(slots, RecordKind.INCREMENT)[-1]
        last.value = (last.value or b"")[:-1]

    await damaged.rewrite(((INCREMENTS, hide),))
    with family(damaged.here.bootstrap_servers, tmp_path) as children:
        child = children.start("ledger", damaged.here.app.app_id)

        def failed() -> bool:
            return [p["phase"] for p in child.partitions().values()] == ["failed"]

        await asyncio.to_thread(child.wait_http)
        await asyncio.to_thread(child.until, failed, "FAILED")
        error = child.partitions()[0]["error"]
        assert error["kind"] == "LogDamaged"
        assert await asyncio.to_thread(child.terminate) == 0
