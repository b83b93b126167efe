"""HTTP of one service, assembled: its application, what it learns of other processes, and the server. For the loop of
HTTP's thread."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from snapreplay.api.asking import Asking
from snapreplay.api.credentials import HttpTokens, TlsFiles
from snapreplay.api.events import StatusEvents
from snapreplay.api.last_hour import LastHourRecorder
from snapreplay.api.peer_client import Caller
from snapreplay.api.peers import Peers
from snapreplay.api.probing import Probes
from snapreplay.api.serving import PROBES_PORT, Server
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.address import Address
from snapreplay.service.control.protocol import Control
from snapreplay.service.runtime.tasks import watched

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


LOAD_AFTER_SECONDS = 0.5
LOOK_SECONDS = 0.02


class Application:
    """Answers for a service from its making until `close`."""

    def __init__(
        self,
        control: Control,
        settings: HttpSettings,
        bound: Address,
        listeners: Sequence[socket.socket],
        runners: asyncio.AbstractEventLoop,
    ) -> None:
        """Take `listeners`: of the API, then of the probes if they have one. `runners`: the loop that control's
        commands and reads are for."""
        tls = TlsFiles.of(settings)
        self._asking = Asking(control, runners)
        self._events = StatusEvents(self._asking.last)
        token_file = settings.token_file and str(Path(settings.token_file).absolute())
        tokens = HttpTokens(token_file, needs_certificate=bool(tls.client_ca))
        caller = Caller(tokens.headers, tls.client(), has_certificate=bool(tls.certificate))
        self._peers = Peers(settings.suspect_after_ms / 1000, control.suspect, caller, control.ended)
        self._hour = LastHourRecorder()
        names = f"{settings.allowed_hosts},{urlsplit(settings.advertised_url).hostname or ''}"

        def make() -> ASGIApp:
            from snapreplay.api.app import create_app  # noqa: PLC0415 - it imports the web framework
            from snapreplay.api.guard import Hosts, allowed_hosts  # noqa: PLC0415 - it imports starlette

            return create_app(
                self._asking,
                Hosts(bound.host, allowed_hosts(names)),
                tokens=tokens,
                events=self._events,
                peers=self._peers,
                hour=self._hour,
            )

        self._app = Loading(make)
        self._server = Server(Probes(self._app, self._asking.recent))
        self._server.listen(listeners[0], contexts=tls.server() if tls.certificate else None)
        for each in listeners[1:]:
            self._server.listen(each, {PROBES_PORT: True})
        self._running = watched(asyncio.get_running_loop().create_task(self._run()), "HTTP")

    async def _run(self) -> None:
        """Tell others what this process does, and follow them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load())
            group.create_task(self._events.run())
            group.create_task(self._peers.run(self._asking.last))
            group.create_task(self._hour.run(self._asking.last, self._peers))

    async def _load(self) -> None:
        """Load the application when all partitions are LIVE, or after a moment: a quick restore goes first."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LOAD_AFTER_SECONDS
        while loop.time() < until:
            if all(each.ok for each in (await self._asking.look()).ready_checks):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await self._app.load()

    async def close(self, within_seconds: float) -> None:
        """Say goodbye to those who follow, finish the running requests within so many seconds, then end all."""
        self._running.cancel()
        self._events.end()
        await self._server.close(within_seconds)


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
