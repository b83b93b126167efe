"""Where the logs begin, and the proof that T-ZengLiang was cut."""

import pytest

from snapreplay.snapshots.format.envelope import Kind
from tests.support.tampering import cut, tamper

pytestmark = pytest.mark.kafka


async def test_a_snapshot_ahead_of_the_last_increment_proves_a_cut(past):
    """Committed batches are gone: FAILED with both batches, though a shorter history would look whole."""
    then = await past()
    await tamper(then.here, then.increments, Kind.INCREMENT, cut, 5)
    status = await then.here.failure()
    assert status.error.kind == "LogCut"
    assert "snapshot of batch 5, but the last increment is batch 4" in status.error.message
    assert then.increments in status.error.message
    assert "backup" in status.error.hint


async def test_an_orphan_snapshot_of_the_last_batch_is_harmless(past):
    """Written, then killed before its pointer: nobody reads it, and it proves nothing."""
    then = await past()
    await tamper(then.here, then.increments, Kind.INCREMENT, cut, 6)
    async with then.here.running() as service:
        status = service.restore_status()[0]
        assert (status.batch, status.restore.snapshot.snapshot_id) == (5, then.first)
