"""Tests of the way from the snapshot to the last increment: both modes, the fallback, and every mismatch."""

import re

import pytest

from snapreplay.service.core.chain import genesis_increment
from snapreplay.service.recovery.follower import DigestMismatch, Tally, prove
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.map import MapState
from snapreplay.state.stores import store_of
from tests.support import apps
from tests.support.entries import GENESIS, ORIGIN
from tests.support.tampering import flip, with_fields

WRONG = Digest(20, 1, 2)


@pytest.mark.parametrize(
    ("changes", "mode", "replayed"), [(True, "changes", 0), (True, "replay", 40), (False, "replay", 40)]
)
async def test_both_modes_lead_to_the_recorded_digest(bench, changes, mode, replayed):
    """The same state, compared batch by batch; replay runs the handlers, changes do not. Without changes it is all."""
    await bench.past(changelog={"enabled": changes})
    restore = await bench.restored(restore={"mode": mode} if changes else {})
    assert (restore.mode, restore.records_replayed) == (mode, replayed)
    assert restore.proof.equal
    assert restore.proof.batches_compared == 3


async def test_with_damaged_changes_replay_is_taken_and_reported(bench):
    """The other mode leads to the same digest; topic, partition and offset of the damage are named."""
    await bench.past()
    bench.tamper(bench.increments, RecordKind.CHANGES, flip)
    restore = await bench.restored()
    assert (restore.mode, restore.records_replayed) == ("replay", 40)
    assert restore.proof.equal
    assert re.match(rf"{bench.increments}-0 offset \d+: batch 8: .* crc32", restore.fallback_reason)


async def test_with_a_trimmed_input_replay_gives_way_to_changes(bench):
    """The input's records are gone, their effects are not."""
    await bench.past()
    bench.trim(bench.input, 119)
    async with bench.live(restore={"mode": "replay"}) as one:
        restore = one.status.restore
        assert restore.mode == "changes"
        assert f"{bench.input}-0" in restore.fallback_reason
        assert one.view()["k0"] == {"n": 6, "sum": sum(range(0, 120, 20))}


async def test_without_changes_and_without_input_it_fails(bench):
    """FAILED with the two offsets and what can be done; never a silent jump."""
    await bench.past(changelog={"enabled": False})
    bench.trim(bench.input, 100)
    status = await bench.failure()
    assert status.error.kind == "NoRestoreMode"
    assert "offset 80" in status.error.message
    assert "starts at 100" in status.error.message
    assert "without changes" in status.error.message
    assert "snapreplay accept" in status.error.hint


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_another_digest_than_recorded_stops(bench, mode):
    """The first differing batch is named with both digests; no snapshot is tried instead."""
    await bench.past()
    forged = bench.tamper(bench.increments, RecordKind.INCREMENT, with_fields(digest=WRONG), -2)
    status = await bench.failure(restore={"mode": mode})
    assert status.error.kind == "DigestMismatch"
    assert f"batch 7 (increment at offset {forged.offset})" in status.error.message
    assert str(WRONG) in status.error.message
    assert status.restore.fallback_from is None
    other = {"changes": "replay", "replay": "changes"}[mode]
    assert f"--set restore.mode={other}`" in status.error.hint


async def test_replay_with_changed_code_says_so(bench):
    """Both versions, and the way by changes, which needs no code: it works."""
    await bench.past()
    changed = apps.ledger(bench.app.app_id, apps.subtract, version="2")
    status = await bench.failure(changed, restore={"mode": "replay"})
    assert status.error.kind == "CodeChanged"
    assert bench.app.version in status.error.message
    assert f"this is {changed.version}" in status.error.message
    assert "`--set restore.mode=changes`" in status.error.hint
    async with bench.live(changed) as one:
        assert one.status.restore.mode == "changes"


@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_replay_that_raises_names_the_code_or_the_record(bench, is_changed):
    """Under changed code not "handler failed": the record was processed once. Under the same a handler that is not a
    function of its records: FAILED with record and batch, nothing skipped."""
    await bench.past()

    def raises(value, account):
        raise ValueError("new rule")

    version = "2" if is_changed else bench.app.version
    other = apps.unseen(apps.ledger("app", raises), version)
    error = (await bench.failure(other, restore={"mode": "replay"})).error
    assert error.kind == ("CodeChanged" if is_changed else "ReplayFailed")
    assert "new rule" in error.message
    assert is_changed or error.record_id == f"{bench.input}-0-80"
    assert is_changed or "replaying batch 7" in error.message


async def test_replay_with_other_code_of_the_same_result_continues(bench):
    """A refactoring is proven by its digest, not refused by its version."""
    await bench.past()
    refactored = apps.ledger(bench.app.app_id, apps.take_poison, version="2")
    restore = await bench.restored(refactored, restore={"mode": "replay"})
    assert restore.proof.equal


async def test_another_state_than_the_last_increments_is_not_live():
    """The comparison that ends a recovery, also of one that had no batch to advance."""
    store = store_of(MapState(str, int))
    proof = await prove(store, genesis_increment(ORIGIN, 0, GENESIS, EMPTY, 0, {}), Tally())
    assert proof is not None
    assert proof.equal
    with pytest.raises(DigestMismatch, match="batch 0 recorded"):
        await prove(store, genesis_increment(ORIGIN, 0, GENESIS, WRONG, 0, {}), Tally())


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_stream_time_is_that_of_the_last_batch(bench, mode):
    """No handler runs in the first mode, so only the increments say how late it is."""
    await bench.past()
    async with bench.live(restore={"mode": mode}) as one:
        assert one.runner.store.stream_time_ms == bench.batches()[-1].stream_time_ms == 1119
