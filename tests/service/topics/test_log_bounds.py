"""Tests of where the logs begin, and what does not prove that T-ZengLiang was cut (what does: tests/attacks, A3)."""

from typing import Any

import msgspec
import pytest

from snapreplay.service.core.refusals import LogCut
from snapreplay.snapshots.format.envelope import RecordKind, encode, kind_of
from snapreplay.snapshots.format.records import Manifest, Origin
from tests.damage.memory import World
from tests.support.entries import read_entry


def test_an_orphan_snapshot_of_the_last_batch_is_harmless(past, recovered, cut):
    """Written, then killed before its pointer: it is never read, and proves nothing."""
    world = past()
    cut(world, RecordKind.INCREMENT, 6)
    restore = recovered(world).restore
    assert restore.snapshot.snapshot_id == world.last.pointers[1].snapshot_id


def ahead(world: World, **changed: Any) -> Manifest:
    """A manifest of a later batch than the last increment, as its owner would have written it."""
    manifests = [
        record
        for record in world.log("memory-snapshots").committed()
        if kind_of(record.value or b"") is RecordKind.MANIFEST
    ]
    (*_, newest) = manifests
    manifest: Manifest = read_entry(newest.value)
    end = world.log("memory-increments").end
    later = {"batch": world.last.batch + 3, "increment_offset": end + 10}
    return msgspec.structs.replace(manifest, **{**later, **changed})


def written(world: World, *values: bytes) -> int:
    """Write into T-QuanLiang; return the offset of the first."""
    log = world.log("memory-snapshots")
    offsets = [log.append(None, value, (), 1000, None) for value in values]
    return min(offsets)


def test_orphans_do_not_hide_the_witness(past, recovered):
    """However many records lie behind it, a zombie's old manifest among them; the message leads to it."""
    world = past()
    witness = ahead(world)
    zombie = ahead(world, batch=1, owner_epoch=-1)
    offset = written(world, encode(witness), *[b"an orphan"] * 3000, encode(zombie))
    error = recovered(world).error
    assert isinstance(error, LogCut)
    assert f"offset {offset} holds a snapshot of batch {witness.batch}" in error.message
    assert witness.snapshot_id in error.message


@pytest.mark.parametrize(
    "changed",
    [
        lambda _: {"proposed_by": "compact@host/1"},
        lambda world: {"increment_offset": world.log("memory-increments").end - 2},
        lambda _: {"origin": Origin("other", "1", 1, "")},
    ],
    ids=["a proposal", "an impossible one", "another app's"],
)
def test_a_manifest_ahead_of_the_log_that_no_owner_wrote_is_ignored(past, recovered, changed, caplog):
    """It says nothing of the increments topic, for any other content; a healthy partition continues, and a warning
    names the manifest."""
    world = past()
    offset = written(world, encode(ahead(world, **changed(world))))
    outcome = recovered(world)
    assert outcome.error is None
    assert outcome.entries == world.entries
    assert f"the manifest at offset {offset}" in caplog.text
