"""Ending tasks."""

import asyncio

import pytest

from snapreplay.service.partition.tasks import ended, unless


async def test_a_task_is_over_when_ended_returns():
    """Its finally has run."""
    steps = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await ended(task)
    assert task.cancelled()
    assert steps == ["cleaned up"]


async def test_errors_and_results_of_what_nobody_wants_are_dropped():
    """None is reported as never retrieved."""

    async def fails():
        raise ValueError("late")

    async def succeeds():
        return 1

    for work in (fails, succeeds):
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await ended(task)
        assert task.done()


async def test_work_goes_on_unless_interrupted():
    """Interrupted it is over; its own result and its own error are the caller's."""
    assert await unless(asyncio.Event(), asyncio.sleep(0, "done")) == "done"
    interrupted, steps = asyncio.Event(), []

    async def works():
        try:
            await asyncio.sleep(60)
        finally:
            steps.append("cleaned up")

    async def fails():
        raise ValueError("late")

    asyncio.get_running_loop().call_soon(interrupted.set)
    assert await unless(interrupted, works()) is None
    assert steps == ["cleaned up"]
    with pytest.raises(ValueError, match="late"):
        await unless(asyncio.Event(), fails())
