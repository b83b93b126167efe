"""HTTP of a process, assembled: for each app the application and what it learns of other processes, and the server. For
the loop of HTTP's thread."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Mapping, Sequence
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
from snapreplay.api.server import APPS, MAKING
from snapreplay.api.serving import PROBES_PORT, Server
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.protocol import Address, Control, StatusDocument
from snapreplay.service.runtime.tasks import enter_app, watched

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from snapreplay.api.guard import Hosts


LOAD_AFTER_SECONDS = 0.5


class Application:
    """Answers for one app from its making until `end`."""

    def __init__(
        self, control: Control, settings: HttpSettings, bound: Address, runners: asyncio.AbstractEventLoop, path: str
    ) -> None:
        """Take `runners`: the loop that control's commands and reads are for. `path`: prefix of all its paths; empty
        if the process has one app."""
        tls, tokens = TlsFiles.of(settings), tokens_of(settings)
        self._asking = Asking(control, runners)
        self._events = StatusEvents(self._asking.last)
        caller = Caller(tokens.headers, tls.client(), has_certificate=bool(tls.certificate))
        self._peers = Peers(settings.suspect_after_ms / 1000, control.suspect, caller)
        self._hour = LastHourRecorder()

        def make() -> ASGIApp:
            from snapreplay.api.app import create_app  # noqa: PLC0415 - it imports the web framework

            return create_app(
                self._asking,
                hosts_of(settings, bound),
                tokens=tokens,
                events=self._events,
                peers=self._peers,
                hour=self._hour,
                path=path,
            )

        self._app = Loading(make)
        self.asgi = Probes(self._app, self.statuses)
        self._running = watched(asyncio.get_running_loop().create_task(self._run()), "HTTP")

    async def _run(self) -> None:
        """Tell others what this process does, and follow them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load())
            group.create_task(self._events.run())
            group.create_task(self._peers.run(self._asking.last))
            group.create_task(self._hour.run(self._asking.last, self._peers))

    async def _load(self) -> None:
        """Load the web framework after LOAD_AFTER_SECONDS, so that a quick restore goes first. A request loads it at
        once."""
        await asyncio.sleep(LOAD_AFTER_SECONDS)
        await self._app.load()

    def statuses(self) -> tuple[StatusDocument, ...]:
        """Return the newest status at once."""
        return (self._asking.recent(),)

    async def end(self) -> None:
        """End the event streams with "bye". Other requests are still answered."""
        self._running.cancel()
        self._events.end()


def tokens_of(settings: HttpSettings) -> HttpTokens:
    token_file = settings.token_file and str(Path(settings.token_file).absolute())
    return HttpTokens(token_file, needs_certificate=bool(settings.client_ca_file))


def hosts_of(settings: HttpSettings, bound: Address) -> Hosts:
    """Return the names that the process may be called by. For a loaded web framework."""
    from snapreplay.api.guard import Hosts, allowed_hosts  # noqa: PLC0415 - it imports starlette

    return Hosts(
        bound.host, allowed_hosts(f"{settings.allowed_hosts},{urlsplit(settings.advertised_url).hostname or ''}")
    )


def server_of(
    applications: Mapping[str, Application], settings: HttpSettings, bound: Address, listeners: Sequence[socket.socket]
) -> Server:
    """Serve these apps.

    Args:
        applications: path → application; a single one has all paths.
        listeners: of the API, then of the probes if they have one.
    """

    def make() -> ASGIApp:
        from snapreplay.api.app import create_front  # noqa: PLC0415 - it imports the web framework

        return create_front(statuses, hosts_of(settings, bound), tokens_of(settings))

    def statuses() -> tuple[StatusDocument, ...]:
        return tuple(status for each in applications.values() for status in each.statuses())

    asgi: ASGIApp
    if len(applications) == 1:
        (asgi,) = (each.asgi for each in applications.values())
    else:
        asgi = Below({path: each.asgi for path, each in applications.items()}, Probes(Loading(make), statuses))
    tls = TlsFiles.of(settings)
    server = Server(asgi)
    server.listen(listeners[0], contexts=tls.server() if tls.certificate else None)
    for each in listeners[1:]:
        server.listen(each, {PROBES_PORT: True})
    return server


class Below:
    """Sends `/apps/<app_id>/…` to that app, and everything else to `front`."""

    def __init__(self, applications: Mapping[str, ASGIApp], front: ASGIApp) -> None:
        """Take `applications` by path, and `front`, which answers for the process."""
        self._applications = applications
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app_id, slash, path = scope["path"].removeprefix(APPS).partition("/")
        found = self._applications.get(f"{APPS}{app_id}") if slash and scope["path"].startswith(APPS) else None
        if found is None:
            await self._front(scope, receive, send)
            return
        enter_app(app_id)
        scope["path"] = f"/{path}"  # in place: the connection looks at it, too
        await found(scope, receive, send)


class Loading:
    """An ASGI application that is made by its first request, or by `load`."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """Take `make`, which is called in another thread: the loop answers probes meanwhile."""
        self._make = make
        self._made: asyncio.Task[ASGIApp] | None = None

    async def load(self) -> ASGIApp:
        if self._made is None:
            self._made = asyncio.get_running_loop().create_task(asyncio.to_thread(self._ready))
        return await asyncio.shield(self._made)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self.load()
        await app(scope, receive, send)

    def _ready(self) -> ASGIApp:
        with MAKING:
            app = self._make()
            asyncio.run(_ask(app))
        if gc.get_freeze_count():  # the program has frozen what it imported, as `run` does: this is a part of it
            gc.freeze()
        return app


async def _ask(app: ASGIApp) -> None:
    """Let the web framework make its routes, as it does at the first request: here for the page."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def ignore(_: Message) -> None:
        pass

    about: dict[str, Any] = {"headers": [], "query_string": b"", "root_path": "", "client": None, "state": {}}
    await app({"type": "http", "method": "GET", "path": "/", **about}, receive, ignore)
