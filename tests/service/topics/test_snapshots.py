"""Snapshots on a real broker that are damaged or gone: named, passed over, replaced, never an empty state."""

import pytest

from snapreplay.service.topics import stale_leader
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.digest import EMPTY
from tests.support import apps
from tests.support.stage import phase, processed, states, until
from tests.support.tampering import cut, flip, of_version, tamper, trim, with_fields

pytestmark = pytest.mark.kafka


async def test_the_newest_snapshot_is_loaded_and_only_what_came_after_is_advanced(past):
    """Its id, batch, entries and bytes are shown; three batches are compared."""
    then = await past()
    restore = await then.here.restored()
    used = restore.snapshot
    assert (used.snapshot_id, used.batch, used.entries) == (then.second, 5, 20)
    assert used.size_bytes > 0
    assert restore.proof.equal
    assert (restore.proof.batches_compared, restore.fallback_from) == (3, None)


@pytest.mark.parametrize("kind", [RecordKind.CHUNK, RecordKind.MANIFEST])
async def test_a_damaged_snapshot_is_passed_over_for_the_one_before(past, kind):
    """The reason names it; a new snapshot is taken at once, so that the next recovery finds no damage."""
    then = await past()
    await tamper(then.here, then.snapshots, kind, flip)
    async with then.here.running() as service:
        await then.here.assert_exactly_once(service)
        status = service.restore_status()[0]
        assert status.restore.snapshot.snapshot_id == then.first
        assert status.restore.fallback_from == then.second
        assert "crc32" in status.restore.fallback_reason
        await until(
            lambda: ("fallback", "pointed") in states(service), "a new snapshot, pointed to"
        )
        taken, used = service.control.snapshots()
        assert used.snapshot_id == then.first
    again = await then.here.restored()
    assert again.snapshot.snapshot_id == taken.snapshot_id
    assert again.fallback_from is None


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (RecordKind.MANIFEST, with_fields(batch=4), "batch 4"),
        (RecordKind.MANIFEST, with_fields(digest=EMPTY), "digest"),
        (RecordKind.MANIFEST, cut, "holds nothing at manifest offset"),
        (RecordKind.MANIFEST, with_fields(chunks=[]), "adds up to digest"),
        (RecordKind.CHUNK, cut, "offset"),
    ],
)
async def test_a_snapshot_that_is_not_the_one_pointed_to_is_not_used(past, kind, change, reason):
    """Intact records with other contents, and records that are gone."""
    then = await past()
    await tamper(then.here, then.snapshots, kind, change)
    restore = await then.here.restored()
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == (then.first, then.second)
    assert reason in restore.fallback_reason


async def test_a_snapshot_that_is_not_visible_is_waited_for_in_words(past, monkeypatch, caplog):
    """Status and log name it, its offset and how long it is waited for; all brokers that agree end that."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 3600.0)
    then = await past()
    manifest = await tamper(then.here, then.snapshots, RecordKind.MANIFEST, cut)
    service, waits = then.here.service(), []
    service._board.subscribe(
        lambda status: waits.append(status.restore and status.restore.waiting_for)
    )
    await service.start()
    try:
        await phase(service, "live")
    finally:
        await service.stop()
    (said,) = {wait for wait in waits if wait}
    expected = (
        f"snapshot {then.second} at offset {manifest.offset} of {then.snapshots}-0 is not visible"
    )
    assert said.startswith(expected)
    assert said.endswith("asking all brokers, 3600 s left")
    assert sum(said in record.getMessage() for record in caplog.records) == 1


async def test_with_all_snapshots_unusable_a_whole_log_leads_back_from_genesis(past):
    """All batches are advanced; nothing is lost."""
    then = await past()
    for number in (-1, -2):
        await tamper(then.here, then.snapshots, RecordKind.CHUNK, flip, number)
    restore = await then.here.restored()
    assert restore.snapshot is None
    assert restore.fallback_from == then.second
    assert restore.proof.batches_compared == 9


async def test_with_all_snapshots_unusable_and_a_trimmed_log_it_fails(past):
    """FAILED names both snapshots with their reasons; never silently empty."""
    then = await past()
    for number in (-1, -2):
        await tamper(then.here, then.snapshots, RecordKind.CHUNK, flip, number)
    trim(then.here.bootstrap_servers, then.increments, 0, 5)
    status = await then.here.failure()
    assert status.error.kind == "NoUsableSnapshot"
    for snapshot_id in (then.first, then.second):
        assert snapshot_id in status.error.message
    assert "crc32" in status.error.message
    assert "backup" in status.error.hint


async def test_a_snapshot_of_a_newer_format_is_not_guessed_at(past):
    """FAILED by name of the version, with topic and offset."""
    then = await past()
    manifest = await tamper(then.here, then.snapshots, RecordKind.MANIFEST, of_version(2))
    status = await then.here.failure()
    assert status.error.kind == "UnknownFormatError"
    assert f"{then.snapshots}-0 offset {manifest.offset}" in status.error.message
    assert "format version 2, but this build knows only 1" in status.error.message


async def test_a_snapshot_of_another_state_schema_is_refused(past):
    """Both versions are named."""
    then = await past()
    newer = apps.ledger(then.here.app.app_id, schema_version=2)
    status = await then.here.failure(newer)
    assert status.error.kind == "SchemaDiffers"
    assert "state schema 1, the app's is 2" in status.error.message


async def test_another_state_schema_is_refused_before_there_is_a_snapshot(stage, unique):
    """Every increment carries it, so the new code never adds its units to old ones."""
    here = await stage(apps.ledger(unique("schema")))
    await here.feed(20)
    async with here.running() as service:
        await processed(service, {0: here.sent})
    newer = apps.ledger(here.app.app_id, schema_version=2)
    status = await here.failure(newer)
    assert status.error.kind == "SchemaDiffers"
    assert "state schema 1, the app's is 2" in status.error.message
