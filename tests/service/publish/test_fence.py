"""An owner never goes on with the first fence that the coordinator knows."""

from snapreplay.app.names import transactional_id
from snapreplay.service.publish.fence import fenced, fenced_by_owner
from tests.support.in_memory import InMemory, virtual


@virtual
async def test_an_owner_fences_once_more_only_if_nobody_is_known():
    """After an `init` one fence is enough. Once the coordinator has forgotten the last one, it takes two."""
    here = await InMemory().prepare()
    context = await here.context()
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 1
    here.broker.forget(transactional_id(here.app.app_id, 0))
    assert (await fenced(context)).lineage.producer_epoch == 0
    here.broker.forget(transactional_id(here.app.app_id, 0))
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 1
    assert (await fenced_by_owner(context)).lineage.producer_epoch == 2
