"""The program of a service process of a soak: the checker's app, and a thread that counts this process's asyncio
tasks."""

import asyncio
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from tests.checker import app as checked

COUNT_EVERY_S = 1.0
TASKS = "SOAK_TASKS"

_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def _watch_loops() -> None:
    """Both names: `asyncio.run` asks the one, everybody else the other."""
    make = asyncio.new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        loop = make()
        _loops.add(loop)
        return loop

    asyncio.new_event_loop = asyncio.events.new_event_loop = made


def _count(path: Path) -> None:
    while True:
        tasks = sum(len(asyncio.all_tasks(loop)) for loop in list(_loops))
        fresh = path.with_suffix(".new")
        fresh.write_text(str(tasks))
        fresh.replace(path)
        threading.Event().wait(COUNT_EVERY_S)


_watch_loops()
threading.Thread(target=_count, args=(Path(os.environ[TASKS]),), daemon=True).start()
app: Any = checked.app
