"""Where the logs begin, and what does not prove that T-ZengLiang was cut (what does: tests/attacks, A3)."""

import pytest

from snapreplay.snapshots.format.envelope import RecordKind
from tests.support.tampering import cut, tamper

pytestmark = pytest.mark.kafka


async def test_an_orphan_snapshot_of_the_last_batch_is_harmless(past):
    """Written, then killed before its pointer: nobody reads it, and it proves nothing."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, cut, 6)
    async with then.here.running() as service:
        status = service.restore_status()[0]
        assert status.restore.snapshot.snapshot_id == then.first
