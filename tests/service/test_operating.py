"""Operations and histories that a program asks its service for, as an operator does over HTTP, on a real broker."""

from __future__ import annotations

import asyncio

import pytest

from snapreplay.errors import ServiceClosed, UnknownPartition, UsageError
from snapreplay.service.control.operations import NotCancellable, NotFailed
from tests.support import apps
from tests.support.deadlines import scaled

pytestmark = pytest.mark.kafka


async def test_a_program_has_what_an_operator_has(stage, unique):
    """A pause, its end, a drill, a snapshot that nobody proposed, a retry of what has not failed; then what has
    happened, as far as the log and the process know it."""
    here = await stage(apps.ledger(unique("program")))
    async with here.running() as service:
        await here.feed(100)
        await here.all_processed(service)
        paused = await service.pause(0, "the service behind is down")
        assert (paused.kind, paused.state, paused.reason) == ("pause", "succeeded", "the service behind is down")
        assert service.restore_status()[0].paused_reason == "the service behind is down"
        assert (await service.resume(0)).state == "succeeded"
        assert service.restore_status()[0].paused_since is None
        assert (await service.drill(0)).state == "succeeded"
        rejected = await service.adopt(0, 10_000)
        assert (rejected.state, bool(rejected.parts[0].detail)) == ("failed", True)
        with pytest.raises(NotFailed):
            await service.retry(0)
        kinds = [each.kind for each in service.operations()]
        assert kinds == ["adopt", "drill", "resume", "pause"]
        with pytest.raises(NotCancellable):
            service.cancel(paused.id)
        assert [each.members for each in service.group_changes()] == [1]
        written = await service.trigger_snapshot([0])
        assert [each.snapshot_id for each in service.snapshots()] == [each.snapshot_id for each in written.parts]
        await here.decided()
        found = await service.history(0)
        assert found.ownerships[0].process_id == service.control.facts().process_id
        assert found.ownerships[0].last_batch == service.restore_status()[0].batch
        (name, *_) = service.view(0)
        changes = await service.key_history(0, name, limit=1)
        assert len(changes.changes) == 1
        assert changes.changes[0].stored
        for asked in (service.pause(7), service.history(7), service.key_history(7, name)):
            with pytest.raises(UnknownPartition):
                await asked
        with pytest.raises(UsageError):
            await service.key_history(0, name, store="none")
    for asked in (service.pause(0), service.history(0), service.key_history(0, name)):
        with pytest.raises(ServiceClosed):
            await asked
    for ask in (service.operations, service.snapshots, service.group_changes):
        with pytest.raises(ServiceClosed):
            ask()


async def test_a_program_retries_what_has_failed(stage, unique):
    """The record is still there, so the partition fails again: the operation says why."""
    here = await stage(apps.ledger(unique("retries"), rule=apps.refuse_poison))
    failed = asyncio.Event()
    async with here.running() as service:
        service.on_failed(lambda *_: failed.set())
        await here.send([("ada", {"amount": 1, "poison": True})])
        await asyncio.wait_for(failed.wait(), scaled(30))
        failed.clear()
        retried = await service.retry(0)
        assert (retried.kind, retried.state) == ("retry", "failed")
        assert "poison" in retried.parts[0].detail
        assert failed.is_set()
