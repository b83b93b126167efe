"""Ending tasks."""

import asyncio

from snapreplay.service.partition.tasks import ended


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
