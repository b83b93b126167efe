"""Operations that a program asks its service for, as an operator does over HTTP, on a real broker."""

import asyncio

import pytest

from snapreplay.errors import ServiceClosed, UnknownPartition
from snapreplay.service.control.operations import NotFailed
from tests.support import apps
from tests.support.deadlines import scaled


async def test_a_program_pauses_resumes_and_retries(stage, unique):
    """Each method returns the ended operation; a record that fails again says so in it."""
    here = await stage(apps.ledger(unique("program"), rule=apps.refuse_poison))
    failed = asyncio.Event()
    async with here.running() as service:
        paused = await service.pause(0, "the service behind is down")
        assert (paused.kind, paused.state, paused.reason) == ("pause", "succeeded", "the service behind is down")
        assert service.restore_status()[0].paused_reason == "the service behind is down"
        assert (await service.resume(0)).state == "succeeded"
        assert service.restore_status()[0].paused_since is None
        with pytest.raises(NotFailed):
            await service.retry(0)
        with pytest.raises(UnknownPartition):
            await service.pause(7)
        service.on_failed(lambda *_: failed.set())
        await here.send([("ada", {"amount": 1, "poison": True})])
        await asyncio.wait_for(failed.wait(), scaled(30))
        failed.clear()
        retried = await service.retry(0)
        assert (retried.kind, retried.state) == ("retry", "failed")
        assert "poison" in retried.parts[0].detail
        assert failed.is_set()
    with pytest.raises(ServiceClosed):
        await service.pause(0)
