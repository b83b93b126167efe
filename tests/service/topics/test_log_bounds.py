"""Where the logs begin, and what does not prove that T-ZengLiang was cut (what does: tests/attacks, A3)."""

from snapreplay.snapshots.format.envelope import RecordKind


def test_an_orphan_snapshot_of_the_last_batch_is_harmless(past, recovered, cut):
    """Written, then killed before its pointer: nobody reads it, and it proves nothing."""
    world = past()
    cut(world, RecordKind.INCREMENT, 6)
    restore = recovered(world).restore
    assert restore.snapshot.snapshot_id == world.last.pointers[1].snapshot_id
