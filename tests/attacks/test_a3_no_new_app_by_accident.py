"""A3: an empty increments partition is never a new app, and a log that was cut is never a shorter history."""

import pytest

from snapreplay.service.decisions.init import PartitionLost, init_app
from tests.support import apps
from tests.support.stage import phase
from tests.support.tampering import trim

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("impatient")]

LOG_END = -1  # for DeleteRecords: everything


async def test_a3_one_lost_partition_of_several_is_not_begun_anew(stage, unique):
    """The others run; the lost one is FAILED, and `init` leaves it so."""
    here = await stage(apps.ledger(unique("lost")), 2)
    async with here.running() as service:
        await here.send([("0:a", {"amount": 1}), ("1:b", {"amount": 2})])
        await here.all_processed(service)
    trim(here.bootstrap_servers, here.increments, 1, LOG_END)
    with pytest.raises(PartitionLost, match="the increments of partition 1 were lost") as refused:
        await init_app(here.app, here.settings(), here.cluster)
    assert "snapreplay delete" not in refused.value.hint, "the other partition's state would be lost, too"
    async with here.started() as service:
        status = await phase(service, "failed", 1)
        assert status.error.kind == "NotInitialised"
        await phase(service, "live", 0)
