"""An asyncio event loop without time, sockets and threads: time jumps to the next timer.

Every callback runs in the context of the simulated process that it belongs to, so a process can be stalled as by
SIGSTOP: what is ready for it waits, while the network and the others continue.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

HOST: ContextVar[Host | None] = ContextVar("host", default=None)
"""Whose code runs; None for the network and the simulator itself."""


class Stuck(AssertionError):
    """No task waits for time or for another task: a deadlock."""


class Host:
    """The loop's knowledge of a simulated process: whether it is stalled, and which tasks are its own."""

    def __init__(self) -> None:
        self.stalled = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.context: Context = copy_context()
        self.context.run(HOST.set, self)


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: the same callbacks in the same order on every run. `time()` is in seconds and begins at 0."""

    _ready: deque[Any]
    _scheduled: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.set_task_factory(_make_task)  # type: ignore[arg-type]  # its protocol names no keywords

    def time(self) -> float:
        return self._now

    def resume(self, host: Host) -> None:
        """Run what was ready while the process was stalled."""
        host.stalled = False
        self._ready.extend(host.held)
        host.held = []

    def run_in_executor(  # type: ignore[override]  # no executor: the call is made here and now
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that awaits it
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if not ready:
            while scheduled and scheduled[0].cancelled():
                heapq.heappop(scheduled)
            if not scheduled:
                raise Stuck("no timer and nothing ready: everybody waits for somebody else")
            self._now = scheduled[0].when()
        while scheduled and scheduled[0].when() <= self._now:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            host = handle._context.get(HOST)
            if host is not None and host.stalled:
                host.held.append(handle)
            else:
                handle._run()

    def _write_to_self(self) -> None:
        """There is no selector to sleep in."""


def _make_task(loop: Any, coro: Coroutine[Any, Any, T], **keywords: Any) -> asyncio.Task[T]:
    task = asyncio.Task(coro, loop=loop, **keywords)
    host = HOST.get()
    if host is not None:
        host.tasks.append(task)
    return task
