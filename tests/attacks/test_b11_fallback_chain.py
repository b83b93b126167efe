"""B11: were the way back from a damaged snapshot written in the snapshot, it would be damaged too; and were a fallback
not recorded, every restore would find the same damage again."""

import pytest

from snapreplay.service.core.kafka_errors import CommitInDoubt
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support.entries import read_entry
from tests.support.owner import Owner
from tests.support.stage import until
from tests.support.tampering import flip, tamper

pytestmark = pytest.mark.kafka

LAST_BATCH = 8  # of the past


async def increments_of(here):
    records = (await here.read(f"{here.app.app_id}-increments"))[0]
    return [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]


async def test_b11_after_a_fallback_its_first_increment_says_so_and_a_new_snapshot_is_taken(past):
    """Only the first one: the damage is named once, and the next restore does not meet it."""
    then = await past()
    await tamper(then.here, then.snapshots, RecordKind.MANIFEST, flip)
    one = Owner(then.here, await then.here.context())
    restore = (await one.phase("live")).restore
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == (then.first, then.second)
    await until(lambda: pointed(one, "fallback"), "a new snapshot")
    await then.here.feed(10)
    await one.position(130)
    new = one.status.snapshot.snapshot_id
    await one.end()
    after = [each for each in await increments_of(then.here) if each.batch > LAST_BATCH]
    assert [each.fallback_from for each in after] == [then.second, *[None] * (len(after) - 1)]
    again = Owner(then.here, await then.here.context())
    restore = (await again.phase("live")).restore
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == (new, None)
    await again.end()


async def test_b11_a_fallback_is_not_forgotten_by_a_doubt(past):
    """The commit after it is in doubt and the state stays in memory: the damage is recorded, and the new snapshot
    taken, by the incarnation after it."""
    then = await past()
    await tamper(then.here, then.snapshots, RecordKind.MANIFEST, flip)
    one = Owner(then.here, await then.here.context())
    epoch = (await one.phase("live")).owner_epoch

    async def never(*_):
        raise CommitInDoubt("the answer was lost")

    one.producer.commit = never
    await then.here.feed(10)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    assert (await one.phase("live")).restore.warm is not None
    await until(lambda: pointed(one, "fallback"), "a new snapshot")
    await one.end()
    after = [each for each in await increments_of(then.here) if each.batch > LAST_BATCH]
    assert after[0].fallback_from == then.second


def pointed(one, reason):
    taken = one.status.snapshot
    return taken is not None and (taken.reason, taken.state) == (reason, "pointed")
