"""HTTP for a service, in its process: in a thread with an event loop of its own, so that neither waits for the other.
A handler that blocks the runners' loop delays no probe, and no request delays a record or a heartbeat."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapreplay.api.credentials import TlsFiles, tokens_in
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.protocol import Address, Control, address
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.runtime.tasks import context_of_app

if TYPE_CHECKING:  # slow to import
    from snapreplay.api.application import Application
    from snapreplay.api.serving import Server

log = logging.getLogger("snapreplay.http")

END_SECONDS = 3.0
APPS = "/apps/"
"""Path in front of an app's id, if the process has several."""
MAKING = threading.RLock()
"""Pydantic makes its schemas in one thread at a time; a program may have several apps."""

_held: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_forks(held: socket.socket) -> socket.socket:
    """Close this socket in every process that a handler forks: it would keep the port, or the connection, when this
    process has died."""
    _held.add(held)
    return held


def _close_all() -> None:
    for each in tuple(_held):
        each.close()


os.register_at_fork(after_in_child=_close_all)


class HttpServer:
    """The HTTP API, to be passed as `http` to `run` or `running`."""

    def __init__(self, on_bound: Callable[[Address], None] | None = None) -> None:
        """Take `on_bound`, which is called with the address as soon as requests are answered."""
        self._on_bound = on_bound
        self._listeners: list[socket.socket] = []
        self._bound: Address | None = None
        self._thread: LoopThread | None = None
        self._paths = {""}  # of the apps
        self._applications: dict[str, Application] = {}
        self._server: Server | None = None

    def share(self, app_ids: Sequence[str]) -> Sequence[str]:
        """Return the path for each of these apps of a process. Requests are answered once all have called `serve`."""
        paths = [f"{APPS}{app_id}" for app_id in app_ids]
        self._paths = {*paths}
        return paths

    def bind(self, settings: HttpSettings) -> Address:
        """Take the port, unless this was done before; `serve` is to follow, or `close`. Port 0 picks a free one.

        Raises:
            UsageError: the port is taken or not allowed, the host is not an address of this machine, others reach it
                and no login is demanded, or the tokens or certificates cannot be read.
        """
        if self._bound is not None:
            return self._bound
        if settings.token_file:
            tokens_in(Path(settings.token_file))
        TlsFiles.of(settings).check()
        with ExitStack() as held:
            listeners = [held.enter_context(bind(settings.host, settings.port))]
            bound = address(settings, *listeners[0].getsockname()[:2])
            if not (bound.is_loopback or settings.token_file or settings.client_ca_file or settings.insecure):
                raise _open_to_all(settings.host, bound)
            if settings.probes_port:
                listeners.append(held.enter_context(bind(settings.host, settings.probes_port, PROBES_HINT)))
            held.pop_all()
        self._listeners, self._bound = listeners, bound
        return bound

    async def serve(self, control: Control, settings: HttpSettings, path: str = "") -> Address:
        """Serve the API. With several apps, requests are answered once all apps have called this. Call it in the
        runners' loop. `path`: prefix of all paths of one of several apps.

        Raises:
            UsageError: as `bind`.
        """
        bound = self.bind(settings)
        if self._thread is None:
            self._thread = LoopThread("snapreplay-http")
            self._thread.start()
        runners = asyncio.get_running_loop()
        self._applications[path] = await self._thread.run(_begin(control, settings, bound, runners, path))
        if self._applications.keys() == self._paths:
            listening = self._listen(self._thread, settings, bound)
            await asyncio.create_task(listening, context=context_of_app(""))  # the port is of all apps, not of the last
        return bound

    async def _listen(self, thread: LoopThread, settings: HttpSettings, bound: Address) -> None:
        self._server = await thread.run(_listen({**self._applications}, settings, bound, self._listeners))
        for each in self._listeners[1:]:
            log.info("probes and metrics, without a login: %s", Address(*each.getsockname()[:2]).url)
        if self._on_bound:
            self._on_bound(bound)

    async def close(self, within_seconds: float = END_SECONDS, path: str = "") -> None:
        """Finish the running requests, within so many seconds, 3 at most. Idempotent. `path`: as for `serve`; the last
        app closes the port."""
        application = self._applications.pop(path, None)
        if self._thread is not None and application is not None:
            await self._thread.run(application.end())
        if self._applications:
            return
        if self._thread is not None:
            thread, self._thread = self._thread, None
            if self._server is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(within_seconds + 1):
                        await thread.run(self._server.close(min(within_seconds, END_SECONDS)))
            await asyncio.to_thread(thread.stop)
        while self._listeners:
            self._listeners.pop().close()
        self._bound = None


# In HTTP's thread: the service begins meanwhile.


async def _begin(*given: Any) -> Application:
    from snapreplay.api.application import Application  # noqa: PLC0415 - it loads in the HTTP thread, so LIVE need not wait

    return Application(*given)


async def _listen(*given: Any) -> Server:
    from snapreplay.api.application import server_of  # noqa: PLC0415 - it loads in the HTTP thread

    return server_of(*given)


PORT_HINT = "choose another port with --http-port N (0 picks a free one)"
PROBES_HINT = "choose another port with --set http.probes_port=N (0: none)"


def bind(host: str, port: int, hint: str = PORT_HINT) -> socket.socket:
    """Bind, or raise UsageError: the port is taken or not allowed, or the host is not an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return close_in_forks(socket.create_server((host, port), family=family, backlog=WAITING_MAX))
    except (OSError, OverflowError) as error:
        raise _refused(host, port, hint, error) from error


WAITING_MAX = 1024
"""Connections that the kernel holds until they are accepted."""


def _refused(host: str, port: int, hint: str, error: OSError | OverflowError) -> UsageError:
    if isinstance(error, OverflowError):
        says = f"port {port} does not exist"
    elif error.errno == errno.EADDRINUSE:
        says = f"port {port} on {host} is taken: HTTP cannot be served there"
    elif error.errno == errno.EACCES:
        says = f"port {port} on {host} is not allowed for this user"
    else:
        says = f"HTTP cannot be served on {host!r} port {port}: {error}"
        hint = "http.host must be an address of this machine"
    return UsageError(says, hint=hint, host=host, port=port)


def _open_to_all(host: str, bound: Address) -> UsageError:
    return UsageError(
        f"http.host={host} (port {bound.port}) is not the loopback address, and no login is required: everybody who "
        "reaches it could read the state and change what the service does",
        hint="require a token: `openssl rand -hex 32 > token` and `--set http.token_file=token`; or serve this machine "
        "only: `--set http.host=127.0.0.1`; or let everybody in: `--set http.insecure=true`",
        host=host,
    )
