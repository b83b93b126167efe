"""HTTP for a service, in a process of its own, which this module starts, feeds, watches and ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable

from snapreplay.api.address import Address
from snapreplay.api.keeper import END_SECONDS, Keeper
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.protocol import Control

log = logging.getLogger("snapreplay.http")

START_SECONDS = 10.0


class HttpServer:
    """The HTTP API, for `run` and `running`. A service calls `serve` and `close`, once each."""

    def __init__(self, on_bound: Callable[[Address], None] | None = None) -> None:
        """Take `on_bound`, which is called with the address as soon as requests are answered; None: nobody is told."""
        self._on_bound = on_bound
        self._keeper: Keeper | None = None

    async def serve(self, control: Control, settings: HttpSettings) -> Address:
        """Bind and answer; returns once requests are answered. Port 0 picks a free port.

        Raises:
            UsageError: the port is taken or not allowed, the host is no address of this machine, or the program has no
                Python interpreter.
        """
        _check_interpreter()
        listener = bind(settings.host, settings.port)
        address = Address(*listener.getsockname()[:2])
        self._keeper = Keeper(control, listener, settings)
        self._keeper.start()
        if not await asyncio.to_thread(self._keeper.heard.wait, START_SECONDS):
            log.warning(
                "the HTTP process has not started within %.0f s; requests wait for it",
                START_SECONDS,
            )
        if self._on_bound:
            self._on_bound(address)
        return address

    async def close(self, within_seconds: float = END_SECONDS) -> None:
        """Finish the running requests, within so many seconds, 3 at most. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.stop, min(within_seconds, END_SECONDS))


def _check_interpreter() -> None:
    """Refuse a frozen program, which is its own executable: started for HTTP, it would be the app once more."""
    frozen = getattr(sys, "frozen", False)
    if frozen or not sys.executable:
        lacks = "it is frozen" if frozen else "sys.executable is empty"
        raise UsageError(
            f"HTTP cannot be served: its process needs a Python interpreter, which this program lacks ({lacks})",
            hint="leave HTTP out (`run(app, http=None)`), or run the program with a Python interpreter",
        )


def bind(host: str, port: int) -> socket.socket:
    """Bind, or raise UsageError: the port is taken or not allowed, or the host is no address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise _refused(host, port, error) from error


def _refused(host: str, port: int, error: OSError) -> UsageError:
    hint = "choose another port with --http-port N (0 picks a free one)"
    if error.errno == errno.EADDRINUSE:
        says = f"port {port} on {host} is taken: HTTP cannot be served there"
    elif error.errno == errno.EACCES:
        says = f"port {port} on {host} is not allowed for this user"
    else:
        says = f"HTTP cannot be served on {host!r} port {port}: {error}"
        hint = "http.host must be an address of this machine"
    return UsageError(says, hint=hint, host=host, port=port)
