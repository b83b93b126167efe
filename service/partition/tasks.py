"""Ending tasks whose result nobody wants any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel and wait. Its error, if any, is looked at and dropped: whoever cares has awaited the task before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def unless(interrupted: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do `work`, but no longer than until `interrupted` is set: then None. An error of `work` is raised."""
    loop = asyncio.get_running_loop()
    working, waiting = loop.create_task(work), loop.create_task(interrupted.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await ended(working)
        await ended(waiting)
