"""Ending tasks whose result nobody wants any more."""

from __future__ import annotations

import asyncio
from typing import Any


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel and wait. Its error, if any, is looked at and dropped: whoever cares has awaited the task before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
