"""Background tasks: their ends, and how many start at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from snapreplay.service.runtime import tasks
from snapreplay.service.runtime.tasks import AT_ONCE, StartTurns, cancel_and_wait, unless, watched, within


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
    await cancel_and_wait(task)
    assert task.cancelled()
    assert steps == ["cleaned up"]


async def test_a_loop_that_waits_ends_when_it_is_cancelled_as_its_event_comes():
    """Else it continues for ever, and its canceller waits for ever (simulator seed 623064)."""
    event = asyncio.Event()

    async def look():
        while True:
            await within(60, event)
            event.clear()

    task = asyncio.create_task(look())
    await asyncio.sleep(0)
    event.set()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_a_wait_says_whether_the_event_came():
    """In time, or not."""
    event = asyncio.Event()
    assert not await within(0.001, event)
    event.set()
    assert await within(60, event)


async def test_errors_and_results_without_a_reader_are_dropped():
    """None is reported as never retrieved."""

    async def fails():
        raise ValueError("late")

    async def succeeds():
        return 1

    for work in (fails, succeeds):
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await cancel_and_wait(task)
        assert task.done()


async def test_work_continues_unless_interrupted():
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


async def test_a_defect_of_a_background_task_is_logged_and_its_end_is_not(caplog):
    """With its traceback; also of another thread's loop."""

    async def work(error):
        if error is not None:
            raise error

    loop = asyncio.get_running_loop()
    task = watched(asyncio.create_task(work(ZeroDivisionError("here"))), "the task")
    future = asyncio.run_coroutine_threadsafe(work(ZeroDivisionError("there")), loop)
    watched(future, "the future")
    good = watched(asyncio.create_task(work(None)), "the good one")
    cut = watched(asyncio.create_task(asyncio.sleep(60)), "the cancelled one")
    cut.cancel()
    await asyncio.wait([task, good, cut, asyncio.wrap_future(future)])
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records] == [
        "the task ended with a defect",
        "the future ended with a defect",
    ]
    assert "ZeroDivisionError: there" in caplog.text


async def waiting(starts: StartTurns) -> "asyncio.Task[None]":
    """One more that wants a turn, and has asked for it."""

    async def wants() -> None:
        async with starts.one():
            pass

    task = asyncio.create_task(wants())
    await asyncio.sleep(0)
    return task


async def test_one_more_waits_until_somebody_has_ended():
    """So many at once, and no more."""
    starts = StartTurns()
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE - 1):
            await stack.enter_async_context(starts.one())
        async with starts.one():
            late = await waiting(starts)
            assert not late.done()
        await late


async def test_who_takes_long_makes_room_and_ends_without_making_more(monkeypatch):
    """Its own end frees nothing a second time."""
    monkeypatch.setattr(tasks, "LONGEST_SECONDS", 0.01)
    starts = StartTurns()
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(starts.one())
        await (await waiting(starts))
    monkeypatch.setattr(tasks, "LONGEST_SECONDS", 60.0)
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(starts.one())
        late = await waiting(starts)
        assert not late.done()
    await late
