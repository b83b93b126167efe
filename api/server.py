"""HTTP for a service, in a process of its own, which this module starts, answers, watches, starts again and ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from snapreplay.api.http_process import Arguments
from snapreplay.api.tls import TlsFiles
from snapreplay.api.tokens import tokens_in
from snapreplay.errors import UsageError
from snapreplay.service.clock import boot_seconds
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.sources import ENV_PREFIX
from snapreplay.service.control.address import Address, address
from snapreplay.service.control.framing import Check, Logged, Probed, early, frame, messages
from snapreplay.service.runtime import child_process

if TYPE_CHECKING:  # probes wait for this module
    from snapreplay.api.state_line import StateLine
    from snapreplay.service.control.protocol import Control

log = logging.getLogger("snapreplay.http")

START_SECONDS = 10.0
SILENT_SECONDS = 30.0  # it asks every second
END_SECONDS = 3.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 30.0
LONG_LIFE_SECONDS = 60.0
LOAD_AFTER_SECONDS = 0.2
"""At most, for a quick restore: to load the application takes more CPU time than this wait. Probes do not wait."""


class HttpServer:
    """The HTTP API, for `run` and `running`. A service calls `serve` and `close`, once each; a program may call `begin`
    before."""

    def __init__(self, on_bound: Callable[[Address], None] | None = None) -> None:
        """Take `on_bound`, which is called with the address as soon as requests are answered; None: nobody is told."""
        self._on_bound = on_bound
        self._listeners: list[socket.socket] = []
        self._bound: Address | None = None
        self._keeper: Keeper | None = None
        self._states: StateLine | None = None

    def bind(self, settings: HttpSettings) -> Address:
        """Take the port, unless it is taken already; `serve` is to follow, or `close`. Port 0 picks a free one.

        Raises:
            UsageError: the port is taken or not allowed, the host is no address of this machine, others reach it and
                no login is demanded, the tokens cannot be read, or the program has no Python interpreter.
        """
        if self._bound is not None:
            return self._bound
        _check_interpreter()
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

    def begin(self, settings: HttpSettings) -> None:
        """Start the HTTP process before there is a service; `serve` is to follow, or `close`. It answers probes: alive,
        not ready. All other requests wait until `serve`.

        Raises:
            UsageError: as `bind`.
        """
        self.bind(settings)
        if self._keeper is None:
            listeners, self._listeners = self._listeners, []
            self._keeper = Keeper(listeners, settings)
            self._keeper.start()

    async def serve(self, control: Control, settings: HttpSettings) -> Address:
        """Answer; returns once requests are answered. Binds, unless `bind` was called.

        Raises:
            UsageError: as `bind`.
        """
        bound = self.bind(settings)
        self.begin(settings)
        assert self._keeper is not None  # noqa: S101 - it has begun
        from snapreplay.api.answering import Answers  # noqa: PLC0415 - slow to import, and probes wait for this module
        from snapreplay.api.state_line import StateLine  # noqa: PLC0415 - too

        self._states = StateLine(control)
        self._keeper.answer(Answers(control).to, self._states.attach)
        if not await asyncio.to_thread(self._keeper.heard.wait, START_SECONDS):
            log.warning("the HTTP process has not started within %.0f s; requests wait for it", START_SECONDS)
        for host, port in self._keeper.bound[1:]:
            log.info("probes and metrics, without a login: %s", Address(host, port).url)
        if self._on_bound:
            self._on_bound(bound)
        return bound

    async def close(self, within_seconds: float = END_SECONDS) -> None:
        """Finish the running requests, within so many seconds, 3 at most. Idempotent."""
        while self._listeners:
            self._listeners.pop().close()
        self._bound = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.stop, min(within_seconds, END_SECONDS))
        if self._states is not None:
            await self._states.close()


def _check_interpreter() -> None:
    """Refuse a frozen program, which is its own executable: started for HTTP, it would be the app once more."""
    if lacks := child_process.without_interpreter():
        raise UsageError(
            f"HTTP cannot be served: its process needs a Python interpreter, which this program lacks ({lacks})",
            hint="leave HTTP out (`run(app, http=None)`), or run the program with a Python interpreter",
        )


PORT_HINT = "choose another port with --http-port N (0 picks a free one)"
PROBES_HINT = "choose another port with --set http.probes_port=N (0: none)"


PATIENCE_SECONDS = 2.0
"""With a port that is taken. The kernel ends the HTTP process of a service that is killed, but a moment later: the next
service may be there before."""


def bind(host: str, port: int, hint: str = PORT_HINT) -> socket.socket:
    """Bind, or raise UsageError: the port stays taken or is not allowed, or the host is no address of this machine."""

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_server((host, port), family=family, backlog=128)
        except (OSError, OverflowError) as error:
            is_in_use = getattr(error, "errno", None) == errno.EADDRINUSE
            if not is_in_use or time.monotonic() > deadline:
                raise _refused(host, port, hint, error) from error
        time.sleep(0.02)  # nobody is told when a port is free again


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
        f"http.host={host} (port {bound.port}) is not the loopback address, and no login is demanded: everybody who "
        "reaches it could read the state and change what the service does",
        hint="demand a token: `openssl rand -hex 32 > token` and `--set http.token_file=token`; or serve this machine "
        "only: `--set http.host=127.0.0.1`; or let everybody in: `--set http.insecure=true`",
        host=host,
    )


class Keeper(threading.Thread):
    """A thread of its own that nothing else waits for: neither the process that it feeds nor a full socket delays the
    service. Daemon: the end of the program does not wait for it either, and the kernel ends the process with it."""

    def __init__(self, listeners: Sequence[socket.socket], settings: HttpSettings) -> None:
        """Take `listeners` over: that of the API, then that of the probes, if they have one."""
        super().__init__(name="snapreplay-http", daemon=True)
        self._answers: Callable[[bytes], bytes] | None = None
        self._attach: Callable[[socket.socket], None] = socket.socket.close
        self._listeners = list(listeners)
        self.bound = [each.getsockname()[:2] for each in listeners]
        self._settings = settings
        self._stopping = threading.Event()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.heard = threading.Event()
        """Set when a process has started and asked for the first time."""

    def answer(self, answers: Callable[[bytes], bytes], attach: Callable[[socket.socket], None]) -> None:
        """Let these be the answers from now on. `attach` gets our end of each process's line for reads of states."""
        self._attach, self._answers = attach, answers

    def stop(self, within_seconds: float) -> None:
        """End the process, gracefully if it can within so many seconds. Idempotent."""
        self._stopping.set()
        if (line := self._line) is not None:
            _hang_up(line)
        self.join(within_seconds)
        if self.is_alive() and (process := self._process) is not None:
            process.kill()
        self.join()

    def run(self) -> None:
        try:
            self._keep()
        finally:
            for each in self._listeners:
                each.close()

    def _keep(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                why = self._live()
            except Exception as error:  # noqa: BLE001 - whatever ends a process, another one is started
                why = repr(error)
            if self._stopping.is_set():
                return
            if time.monotonic() - began > LONG_LIFE_SECONDS:
                pause = PAUSE_SECONDS_MIN
            self._listen()
            log.error("the HTTP process has ended, the next one starts in %.1f s: %s", pause, why)
            self._stopping.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _listen(self) -> None:
        """Let connections wait for the next process. To the other processes of the group, a refused one says that the
        whole service is dead."""
        with suppress(UsageError):  # the next process tries again, and says so
            self._bind()

    def _bind(self) -> None:
        for each in self.bound[len(self._listeners) :]:
            self._listeners.append(bind(*each))

    def _live(self) -> str:
        """Live through one process, from its start to its end. Returns how it ended."""
        ours, theirs = socket.socketpair()
        states, their_states = socket.socketpair()
        with ours:
            # All are the process's alone then: what a handler forks cannot keep the port.
            with theirs, their_states, ExitStack() as held:
                self._bind()
                listeners, self._listeners = self._listeners, []
                for each in listeners:
                    held.enter_context(each)
                process = self._start(listeners, theirs, their_states)
            ours.settimeout(SILENT_SECONDS)
            self._line, self._process = ours, process
            if self._stopping.is_set():
                process.kill()
            try:
                why = self._answer(ours, states)
            finally:
                self._line = None
                _hang_up(ours)
                code = _ended(process)
        return why or f"exit code {code}"

    def _start(
        self, listeners: Sequence[socket.socket], line: socket.socket, states: socket.socket
    ) -> subprocess.Popen[bytes]:
        files = [each.fileno() for each in (*listeners, line, states)]
        arguments = Arguments(
            os.getpid(),
            files[0],
            files[1] if len(listeners) > 1 else -1,
            line.fileno(),
            states.fileno(),
            self.bound[0][0],
            f"{self._settings.allowed_hosts},{urlsplit(self._settings.advertised_url).hostname or ''}",
            self._settings.token_file and str(Path(self._settings.token_file).absolute()),
            TlsFiles.of(self._settings),
            self._settings.suspect_after_ms,
            LOAD_AFTER_SECONDS,
        )
        # Without settings: the process asks nobody but the service, so it needs no password.
        environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(ENV_PREFIX)}
        return subprocess.Popen(
            [*child_process.command("snapreplay.api.http_process"), arguments.encoded()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=files,
            env=child_process.environment(environment),
            start_new_session=True,
        )

    def _answer(self, line: socket.socket, states: socket.socket) -> str:
        """Answer until the other end is gone. Returns why, if that is known here."""
        is_attached = False
        try:
            for encoded in messages(line):
                self.heard.set()
                if not is_attached and self._answers is not None:
                    self._attach(states)
                    is_attached = True
                line.sendall((self._answers or _starting)(encoded))
        except TimeoutError:
            return f"it was silent for {SILENT_SECONDS:.0f} s"
        except OSError:
            pass  # it is gone: its exit code says more
        finally:
            if not is_attached:
                states.close()
        return ""


def _starting(message: bytes) -> bytes:
    """Answer for a program that still makes its service: what probes hear. `/startupz` is not answered until it is
    made."""
    asked = early(message)
    if isinstance(asked, Logged):
        asked.log()
        return b""
    starts = "the service is being started"
    checks = (Check("service", ok=True, detail=starts),), (Check("member", ok=False, detail=starts),)
    return frame(Probed(*checks, boot_seconds()))


def _hang_up(line: socket.socket) -> None:
    """Hang up: the process sees it, finishes its requests and ends."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_WR)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the process, and kill it if it does not end; return its exit code."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
