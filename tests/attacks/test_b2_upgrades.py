"""B2: an upgrade is no trap: version 1 is killed, version 2 goes on by either mode, or says what to do."""

from typing import Any

import pytest

from tests.support import apps, reference
from tests.support.stage import phase, processed

pytestmark = pytest.mark.kafka


async def ended_after(here: Any, count: int) -> None:
    """The same, ended without a last snapshot: the log is that of a process that was killed."""
    async with here.running() as service:
        await here.feed(count)
        await here.all_processed(service)


async def test_b2_version_2_by_replay_names_both_versions_and_the_way(stage, unique):
    """Lean mode: FAILED as changed code, not as corruption, at once and not after older snapshots; version 1 once
    more with a snapshot at its stop leaves nothing to replay, and version 2 goes on."""
    here = await stage(apps.ledger(unique("lean")), changelog={"enabled": False})
    await ended_after(here, 60)
    version_2 = apps.ledger(here.app.app_id, apps.subtract, version="2")
    status = await here.failure(version_2)
    assert status.error.kind == "CodeChanged"
    assert f"app version {here.app.version}, this is {version_2.version}" in status.error.message
    assert status.restore.fallback_from is None
    for way in ("start the version that processed it and stop it", "snapreplay accept"):
        assert way in status.error.hint
    assert "restore.mode" not in status.error.hint.partition("--set")[0], "no changes were written"
    async with here.running(snapshot={"before_stop": True}):
        pass
    async with here.running(version_2) as service:
        assert service.restore_status()[0].restore.records_replayed == 0
        await here.feed(40)
        await processed(service, {0: 100})
        assert reference.as_plain(service.view(0)) == reference.booked(range(60), range(60, 100))


async def test_b2_a_hotfix_starts_from_the_snapshot_that_failing_left(stage, unique):
    """Lean mode, so that everything before would have to be replayed by code that is not there any more: before
    FAILED the owner wrote a snapshot, and a fix that books differently replays nothing."""
    here = await stage(
        apps.ledger(unique("hotfix"), apps.refuse_poison), changelog={"enabled": False}
    )
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
