"""Who owns the partition, asked of a real log."""

import pytest

from snapreplay.service.partition.claiming import claim_record
from snapreplay.service.partition.ownership import newer_owner
from tests.support import apps
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka


async def claimed(context):
    producer = await context.cluster.fence(context.transactional_id)
    (offset,) = await producer.commit(context.partition, (), (claim_record(context, "c"),))
    await producer.discard()
    return offset


async def instance_of(context, owner_epoch):
    owner = await newer_owner(context, owner_epoch)
    return owner.instance_id if owner else None


async def test_a_fence_without_a_newer_claim_proves_nothing(stage, unique):
    """Our transaction may only have timed out."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    assert await newer_owner(context, await claimed(context)) is None


async def test_the_newest_claim_is_the_owner(stage, unique):
    """Also when the log before it was trimmed."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    await claimed(await here.context(instance_id="two"))
    last = await claimed(await here.context(instance_id="three"))
    assert await instance_of(context, mine) == "three"
    trim(here.bootstrap_servers, context.increments.topic, 0, last)
    assert await instance_of(context, mine) == "three"
    assert await newer_owner(context, last) is None
