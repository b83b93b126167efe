"""B2: an upgrade is no trap: version 1 is killed, version 2 goes on by either mode, or says what to do."""

import asyncio
from typing import Any

import pytest

from tests.support import apps, reference
from tests.support.stage import phase, processed, until

pytestmark = pytest.mark.kafka


async def killed_after(here: Any, children: Any, count: int, **settings: Any) -> Any:
    """Version 1 as a process of its own that has booked `count` payments; SIGKILL."""
    child = children.start("ledger", here.app.app_id, **settings)
    await asyncio.to_thread(child.wait_live)
    await here.feed(count)
    await until(lambda: child.processed() == count, "the input")
    child.kill()


async def ended_after(here: Any, count: int) -> None:
    """The same, ended without a last snapshot: the log is that of a process that was killed."""
    async with here.running() as service:
        await here.feed(count)
        await here.all_processed(service)


async def test_b2_version_2_by_changes_needs_no_old_code(stage, unique):
    """What version 1 had booked stays as it booked it; what comes is booked by version 2."""
    here = await stage(apps.ledger(unique("upgrade")))
    await ended_after(here, 60)
    version_2 = apps.ledger(here.app.app_id, apps.subtract, version="2")
    async with here.running(version_2) as service:
        assert service.restore_status()[0].restore.mode == "changes"
        await here.feed(40)
        await processed(service, {0: 100})
        assert reference.as_plain(service.view(0)) == reference.booked(range(60), range(60, 100))


async def test_b2_version_2_by_replay_names_both_versions_and_the_way(stage, unique, children):
    """Lean mode: FAILED as changed code, not as corruption, at once and not after older snapshots; version 1 once
    more with a snapshot at its stop leaves nothing to replay, and version 2 goes on."""
    here = await stage(apps.ledger(unique("lean")), changelog={"enabled": False})
    await killed_after(here, children, 60, changelog__enabled="false")
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


async def test_b2_version_2_that_computes_the_same_is_proven_by_replay(stage, unique):
    """A refactoring is told from a change by its digest, batch by batch."""
    here = await stage(apps.ledger(unique("same")), changelog={"enabled": False})
    await ended_after(here, 60)
    async with here.running(apps.ledger(here.app.app_id, apps.take_poison, version="2")) as service:
        restore = service.restore_status()[0].restore
        assert (restore.mode, restore.records_replayed, restore.proof.equal) == ("replay", 60, True)
        await here.assert_exactly_once(service)


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
