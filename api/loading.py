"""The application is imported when it is needed: to import the web framework takes as much CPU as a small restore."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_making = threading.Lock()
"""Pydantic makes its schemas in one thread at a time; a program may have several services."""


class Loading:
    """An ASGI application that is made by its first request, or by `load`."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """Take `make`, which is called in another thread: the loop answers probes meanwhile."""
        self._make = make
        self._made: asyncio.Task[ASGIApp] | None = None

    async def load(self) -> ASGIApp:
        """Return the application."""
        if self._made is None:
            self._made = asyncio.get_running_loop().create_task(asyncio.to_thread(self._ready))
        return await asyncio.shield(self._made)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self.load()
        await app(scope, receive, send)

    def _ready(self) -> ASGIApp:
        with _making:
            app = self._make()
            asyncio.run(_ask(app))
        if gc.get_freeze_count():  # the program has frozen what it imported, as `run` does: this is a part of it
            gc.freeze()
        return app


async def _ask(app: ASGIApp) -> None:
    """Let the web framework make its routes, as it does at the first request: here for the page, which asks nobody."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def ignore(_: Message) -> None:
        pass

    about: dict[str, Any] = {"headers": [], "query_string": b"", "root_path": "", "client": None, "state": {}}
    await app({"type": "http", "method": "GET", "path": "/", **about}, receive, ignore)
