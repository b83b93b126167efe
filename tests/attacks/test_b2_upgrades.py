"""B2: an upgrade is no trap: version 1 is killed, version 2 goes on by either mode, or says what to do."""

import pytest

from tests.support import apps, reference
from tests.support.stage import phase, processed

pytestmark = pytest.mark.kafka


async def test_b2_a_hotfix_starts_from_the_snapshot_that_failing_left(stage, unique):
    """Lean mode, so that everything before would have to be replayed by code that is not there any more: before
    FAILED the owner wrote a snapshot, and a fix that books differently replays nothing."""
    here = await stage(apps.ledger(unique("hotfix"), apps.refuse_poison), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(30)
        await here.all_processed(service)
        await here.feed(10, poison=True)
        status = await phase(service, "failed")
        assert (status.error.kind, status.snapshot.state) == ("HandlerFailed", "pointed")
    fixed = apps.ledger(here.app.app_id, apps.subtract, version="fixed")
    async with here.running(fixed) as service:
        assert service.restore_status()[0].restore.records_replayed == 0
        await processed(service, {0: 40})
        assert reference.as_plain(service.view(0)) == reference.booked(range(30), range(30, 40))
