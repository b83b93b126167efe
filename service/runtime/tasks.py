"""Background tasks: how they end, how their defects are logged, how many start at once, and which app they are of, if
the process runs several. Log lines and task names carry its id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from snapreplay.interrupts import of_a_signal

log = logging.getLogger("snapreplay")

T = TypeVar("T")
Watched = TypeVar("Watched", asyncio.Task[None], Future[None])

_app_id: ContextVar[str] = ContextVar("snapreplay_app_id", default="")


def context_of_app(app_id: str) -> Context:
    """Make a context for this app; tasks and threads started in it inherit it."""
    context = copy_context()
    context.run(enter_app, app_id)
    return context


def enter_app(app_id: str) -> None:
    """Set the app of the current context."""
    _app_id.set(app_id)


def current_app_id() -> str:
    """Return the app's id; empty if the process has one app, or the code serves all apps."""
    return _app_id.get()


def with_app(text: str) -> str:
    """Put the app's id before a text, if the process has several apps."""
    return f"{app_id}: {text}" if (app_id := _app_id.get()) else text


def watched(task: Watched, what: str) -> Watched:
    """Log the error that the task ends with, which would be lost otherwise. `what` names the task."""
    task.add_done_callback(lambda done: _tell(done, what))
    return task


def _tell(done: asyncio.Task[None] | Future[None], what: str) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("%s ended with a defect", what, exc_info=error)


def asked_to_end(error: BaseException) -> bool:
    """Say whether this error ends the current task because it was cancelled, or a signal ends the process. Any other
    CancelledError is a defect."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit) or of_a_signal(error)


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel the task and wait. Its error, if any, is dropped: a caller that needs it has awaited the task before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def within(seconds: float, event: asyncio.Event) -> bool:
    """Say whether the event was set in this time.

    Not by `asyncio.wait_for`: before Python 3.12 it loses a cancellation that comes together with the event (gh-86296).
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def turn_in(period_seconds: float, share: float = 0.0, least_seconds: float = 0.0) -> float:
    """Return the seconds to the next turn, one each period. Tasks with the same share have their turns together, so
    that what they ask of the cluster is asked once."""
    now = asyncio.get_running_loop().time()
    return least_seconds + (share * period_seconds - now - least_seconds) % period_seconds


async def unless(interrupted: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do `work`, but no longer than until `interrupted` is set: then None. An error of `work` is raised."""
    loop = asyncio.get_running_loop()
    working, waiting = loop.create_task(work), loop.create_task(interrupted.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working)
        await cancel_and_wait(waiting)


AT_ONCE = 16
LONGEST_SECONDS = 2.0
"""After this time a start gives its place to the next one: it waits for something else."""


class StartTurns:
    """Limits the concurrent starts of recoveries in a process: of hundreds at once on a slow machine, each would take
    longer than its deadline."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a place for the length of the block, for at most `LONGEST_SECONDS`."""
        await self._free.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._free.release()

        late = asyncio.get_running_loop().call_later(LONGEST_SECONDS, end)
        try:
            yield
        finally:
            late.cancel()
            end()
