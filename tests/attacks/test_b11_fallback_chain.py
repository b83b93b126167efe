"""B11: were the way back from a damaged snapshot written in the snapshot, it would be damaged too; and were a fallback
not recorded, every restore would find the same damage again."""

import pytest

from snapreplay.snapshots.format.envelope import RecordKind
from tests.support.owner import Owner
from tests.support.tampering import flip, tamper

pytestmark = pytest.mark.kafka

LAST_BATCH = 8  # of the past


async def test_b11_a_fallback_is_not_forgotten_by_a_doubt(past):
    """The commit after it is in doubt and the state stays in memory: the damage is recorded, and the new snapshot
    taken, by the incarnation after it."""
    then = await past()
    await tamper(then.here, then.snapshots, RecordKind.MANIFEST, flip)
    one = Owner(then.here, await then.here.context())
    epoch = (await one.phase("live")).owner_epoch
    one.loses_answers()
    await then.here.feed(10)
    assert (await one.again_live(epoch)).warm is not None
    await one.pointed("fallback")
    await one.end()
    after = [each for each in await then.here.batches() if each.batch > LAST_BATCH]
    assert [each.fallback_from for each in after] == [then.second, *[None] * (len(after) - 1)]
    restore = await then.here.restored()
    assert restore.fallback_from is None, "the new snapshot is used, and the damage not met again"
