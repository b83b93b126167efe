"""The loop in a thread of its own."""

import asyncio
import threading

import pytest

from snapreplay.service.loop_thread import LoopThread


@pytest.fixture
def background():
    loop = LoopThread("test-background")
    loop.start()
    yield loop
    loop.stop()


async def thread_name():
    return threading.current_thread().name


async def test_work_runs_in_that_thread(background):
    """Its result comes back here, and so does its error."""
    assert await background.run(thread_name()) == "test-background"

    async def fails():
        raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        await background.run(fails())


async def test_stop_ends_what_runs_there_and_the_thread(background):
    """Tasks are cancelled and get their finally; a second stop is nothing, nor is one without a start."""
    LoopThread("never").stop()
    ended = threading.Event()

    async def lasting():
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    background.submit(lasting())
    await background.run(asyncio.sleep(0))
    background.stop()
    assert ended.is_set()
    assert not background.alive
    background.stop()
