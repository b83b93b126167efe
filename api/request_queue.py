"""The queue of the requests that have come and have not begun: however many there are, a probe waits for a few of
them at most."""

from __future__ import annotations

import asyncio
from collections import deque


class RequestQueue:
    """Lets one request begin in each turn of the event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    def place(self) -> asyncio.Future[None]:
        """Take a place at the end of the queue, and return what is done when it is this request's turn. Who sets it
        done before has left the queue."""
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        if not self._is_taken:
            self._next()
        return mine

    def hold(self) -> None:
        """Let nobody begin until `release`."""
        self._is_taken = True

    def release(self) -> None:
        self._next()

    def _next(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            mine = self._waiting.popleft()
            if not mine.done():
                mine.set_result(None)
                self._is_taken = True
                asyncio.get_running_loop().call_soon(self._next)
