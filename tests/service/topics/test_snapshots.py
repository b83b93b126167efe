"""Snapshots that are not the ones pointed to, or are gone: named, passed over, never an empty state. Any damaged byte,
and a new snapshot after a fallback: tests/damage, tests/attacks (B11)."""

from dataclasses import replace

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.snapshots import load_manifest, load_state
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.digest import EMPTY
from snapreplay.state.stores import store_of
from tests.damage import memory
from tests.damage.edits import flips
from tests.support import apps
from tests.support.tampering import with_fields

CHUNK, MANIFEST = RecordKind.CHUNK, RecordKind.MANIFEST
FLIP = next(flips())


def test_what_is_loaded_is_as_late_as_its_snapshot(past):
    """A replay from there meets the same times: an older record does not set them back."""
    world = past()
    store = store_of(world.app.state())

    async def load(context):
        pointer = world.last.pointers[0]
        reader = await context.cluster.reader()
        manifest = await load_manifest(reader, context.snapshots, pointer)
        await load_state(reader, context.snapshots, manifest, 1, store, lambda *_: None)
        await reader.close()
        return manifest.stream_time_ms

    assert world.run(load) == store.stream_time_ms == 1039


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"batch": 4}, "batch 4"), ({"digest": EMPTY}, "digest"), ({"chunks": []}, "adds up to digest")],
)
def test_a_snapshot_that_is_not_the_one_pointed_to_is_not_used(past, recovered, fields, reason):
    """Intact records with other contents."""
    world = past((MANIFEST, -1, with_fields(**fields)))
    assert passed_over(world, recovered(world).restore, reason)


@pytest.mark.parametrize(("kind", "reason"), [(MANIFEST, "holds nothing at manifest offset"), (CHUNK, "offset")])
def test_a_log_that_ends_before_its_newest_snapshot_leads_to_the_one_before(past, recovered, cut, kind, reason):
    """By all brokers."""
    world = past()
    cut(world, kind, -1)
    assert passed_over(world, recovered(world).restore, reason)


def passed_over(world, restore, reason):
    """Say whether the newest was passed over for the one before, with the reason."""
    newest, before, *_ = (pointer.snapshot_id for pointer in world.last.pointers)
    used = (restore.snapshot.snapshot_id, restore.fallback_from)
    return used == (before, newest) and reason in restore.fallback_reason


def test_a_snapshot_that_is_not_visible_is_waited_for_in_words(past, cut, monkeypatch, caplog):
    """Status and log name it, its offset and how long it is waited for; all brokers that agree end that."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 3600.0)
    world = past()
    offset = cut(world, MANIFEST, -1)
    board, waits = StatusBoard(), set()
    board.subscribe(lambda status: waits.add(status.restore and status.restore.waiting_for))
    reporter = Reporter(board, 0)
    world.run(lambda context: RecoveryDriver(context, Memory(context), reporter).recover())
    (said,) = waits - {None, ""}
    newest = world.last.pointers[0].snapshot_id
    assert said == (
        f"snapshot {newest} at offset {offset} of memory-snapshots-0 is not visible: the log ends at {offset};"
        " asking all brokers, 3600 s left"
    )
    assert sum(said in message for message in caplog.messages) == 1


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_another_state_schema_is_refused(past, recovered, cut, has_snapshots):
    """Both versions are named. Every increment carries it, so the new code never adds its units to old ones."""
    world = past()
    if not has_snapshots:
        cut(world, RecordKind.CHANGES, 2)
        assert cut(world, CHUNK, 0) == 0
    newer = replace(world, app=apps.ledger("memory", memory.book, schema_version=2))
    error = recovered(newer).error
    assert type(error).__name__ == "SchemaDiffers"
    assert "schema_version 1, but the app has 2" in error.message
