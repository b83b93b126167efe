"""Keeps the HTTP process of a service: starts it, answers it, sees its death, starts it again."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import snapreplay
from snapreplay.api.http_process import Arguments
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.sources import ENV_PREFIX
from snapreplay.service.control import wire
from snapreplay.service.control.document import document_of, performed
from snapreplay.service.control.metrics import EVENTS, counted
from snapreplay.service.control.protocol import Control

log = logging.getLogger("snapreplay.http")

SILENT_SECONDS = 30.0  # it asks every second
END_SECONDS = 3.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 30.0
LONG_LIFE_SECONDS = 60.0


class Keeper(threading.Thread):
    """A thread of its own that nothing else waits for: neither the process that it feeds nor a full socket delays the
    service. Daemon: the end of the program does not wait for it either, and the kernel ends the process with it."""

    def __init__(self, control: Control, listener: socket.socket, settings: HttpSettings) -> None:
        """Take `listener` over."""
        super().__init__(name="snapreplay-http", daemon=True)
        self._control = control
        self._listener: socket.socket | None = listener
        self._bound = listener.getsockname()[:2]
        self._family = listener.family
        self._allowed = settings.allowed_hosts
        self._stopping = threading.Event()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.heard = threading.Event()
        """Set when a process has started and asked for the first time."""

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
            log.error("the HTTP process has ended, the next one starts in %.1f s: %s", pause, why)
            self._stopping.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _live(self) -> str:
        """Live through one process, from its start to its end. Returns how it ended."""
        ours, theirs = socket.socketpair()
        with ours:
            # Both are the process's alone then: what a handler forks cannot keep the port.
            with theirs, self._take_listener() as listener:
                process = self._start(listener, theirs)
            ours.settimeout(SILENT_SECONDS)
            self._line, self._process = ours, process
            if self._stopping.is_set():
                process.kill()
            try:
                why = self._answer(ours)
            finally:
                self._line = None
                _hang_up(ours)
                code = _ended(process)
        return why or f"exit code {code}"

    def _take_listener(self) -> socket.socket:
        listener, self._listener = self._listener, None
        return listener or socket.create_server(self._bound, family=self._family, backlog=128)

    def _start(self, listener: socket.socket, line: socket.socket) -> subprocess.Popen[bytes]:
        arguments = Arguments(
            os.getpid(), listener.fileno(), line.fileno(), self._bound[0], self._allowed
        )
        package = str(Path(snapreplay.__file__).parent.parent)
        paths = [package, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return subprocess.Popen(
            # Without -P a file of the user in the working directory could stand before a library.
            [sys.executable, "-P", "-m", "snapreplay.api.http_process", arguments.encoded()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(listener.fileno(), line.fileno()),
            env={
                **_without_settings(os.environ),
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            },
            start_new_session=True,
        )

    def _answer(self, line: socket.socket) -> str:
        """Answer until the other end is gone. Returns why, if that is known here."""
        try:
            while (encoded := _read(line)) is not None:
                self.heard.set()
                message = wire.question(encoded)
                if isinstance(message, wire.Logged):
                    logging.getLogger(message.logger).log(message.level, "%s", message.message)
                else:
                    line.sendall(self._answer_to(message))
        except TimeoutError:
            return f"it was silent for {SILENT_SECONDS:.0f} s"
        except OSError:
            pass  # it is gone: its exit code says more
        return ""

    def _answer_to(self, question: wire.Question) -> bytes:
        try:
            match question:
                case wire.AskStatus():
                    return wire.frame(document_of(self._control))
                case wire.AskCounted():
                    return wire.frame(wire.Counted(counted(EVENTS)))
                case command:
                    return wire.frame(wire.Performed(performed(self._control, command)))
        except Exception as error:  # the other end answers with it
            refused = wire.Refused.because(error)
            if refused.error == wire.DEFECT:
                log.exception("a request could not be answered")
            return wire.frame(refused)


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave settings out: the process asks nobody but the service, so it needs no password."""
    return {
        name: value
        for name, value in environment.items()
        if not name.upper().startswith(ENV_PREFIX)
    }


def _read(line: socket.socket) -> bytes | None:
    """Read a message without its length; None: there are no more."""
    head = _exactly(line, wire.LENGTH.size)
    return _exactly(line, wire.LENGTH.unpack(head)[0]) if head is not None else None


def _exactly(line: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


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
