"""B1: the last increment alone says where to start; what to apply, and what to skip, stands in all of them."""

import pytest

from tests.support import apps
from tests.support.stage import snapshot

pytestmark = pytest.mark.kafka


async def test_b1_skips_and_changes_of_every_batch_since_the_snapshot_are_read(stage, unique):
    """Ten batches, half of them with a dead letter, none of it in the last one: both modes give the state folded by
    hand, and compare every batch."""
    here = await stage(
        apps.ledger(unique("every"), apps.refuse_poison),
        errors={"policy": "dead_letter"},
        batch={"records_max": 10, "linger_ms": 0},
    )
    async with here.running() as service:
        await here.feed(20)
        await here.all_processed(service)
        await snapshot(service)
        await here.send((f"k{n % 20}", {"amount": n, "poison": n % 16 == 3}) for n in range(20, 110))
        await here.all_processed(service)
    since = (await here.batches())[-9:]
    assert sum(bool(each.skipped) for each in since) >= 4
    assert not since[-1].skipped
    for mode in ("changes", "replay"):
        async with here.running(restore={"mode": mode}) as service:
            restore = service.restore_status()[0].restore
            assert (restore.mode, restore.fallback_reason) == (mode, None)
            assert restore.proof.batches_compared >= 9
            await here.assert_exactly_once(service, apps.refuse_poison, lambda v: v.get("poison"))
