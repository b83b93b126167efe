"""Answers probes before the application is imported, as the application answers them. All else waits for it."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import msgspec

from snapreplay.api import probing
from snapreplay.api.line import Line, Status
from snapreplay.service.control.framing import probed

if TYPE_CHECKING:  # probes wait for this module
    from starlette.types import Receive, Scope, Send

    from snapreplay.api.application import Application

LOOK_SECONDS = 0.02
_PROBES = {each.path: each for each in (probing.LIVE, probing.READY)}
"""Those that say nothing of HTTP itself: `/startupz` waits until everything can be asked."""
_BODY = {b"content-length", b"transfer-encoding", b"expect"}


class Early:
    """An ASGI application: another one that is loaded meanwhile, and its probes until then."""

    def __init__(self, line: Line) -> None:
        self._status = Status(line, probed)
        self._application: Application | None = None
        self._is_there = asyncio.Event()

    async def quick_restore(self, seconds_max: float) -> None:
        """Wait for the service, then until its partitions are LIVE, for `seconds_max` at most. To load the application
        takes the CPU that they need."""
        loop, ends_at = asyncio.get_running_loop(), inf
        while loop.time() < ends_at:
            document, _ = await self._status.look()
            if document is not None and document.facts is not None:
                if all(each.ok for each in document.ready_checks):
                    return
                ends_at = min(ends_at, loop.time() + seconds_max)
            await asyncio.sleep(LOOK_SECONDS)

    def replace(self, application: Application) -> None:
        """Pass all requests on, also those that wait."""
        self._application = application
        self._is_there.set()

    @property
    def holds(self) -> bool:
        """Whether the application is not there yet."""
        return self._application is None

    def end(self, *, in_good_order: bool) -> None:
        """End what would last. What still waits for the application gets no answer."""
        if self._application is not None:
            self._application.end(in_good_order=in_good_order)
        self._is_there.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.holds and _is_plain(scope):
            await self._answer(scope, send)
            return
        await self._is_there.wait()
        if (application := self._application) is not None:
            await application.app(scope, receive, send)

    async def _answer(self, scope: Scope, send: Send) -> None:
        said = _PROBES[scope["path"]].answer(*await self._status.look())
        body = msgspec.json.encode(said)
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": said.code, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _is_plain(scope: Scope) -> bool:
    """Say whether it is a probe that nobody would refuse or answer in another way."""
    is_known = scope["path"] in _PROBES and not scope["query_string"] and scope["method"] in {"GET", "HEAD"}
    return is_known and not any(name in _BODY for name, _ in scope["headers"])
