"""The parent of `run --processes N`: starts N workers, starts one again that has crashed, and ends with them as one
process would. It processes nothing itself."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from snapreplay.api.cli.worker import Worker
from snapreplay.api.server import LONG_LIFE_SECONDS, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, PROBES_HINT, reserve
from snapreplay.errors import UsageError
from snapreplay.service.control.address import Address, address
from snapreplay.service.runtime import child_process
from snapreplay.service.runtime.context import Identity
from snapreplay.service.signals import DUMPS, LATE_SECONDS, STOPPED_LATE, STOPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapreplay.service.config.settings import Settings

log = logging.getLogger("snapreplay.workers")

CUT_OFF_SECONDS = LATE_SECONDS + 1.0  # a worker cuts itself off before, and says what kept it
LOOK_SECONDS = 0.05
PORT_HINT = (
    "choose another port with --http-port N (0 picks free ones); or, if a parent was killed just now, start again when"
    " its workers have stopped: within timeouts.shutdown_ms"
)


def run_workers(settings: Settings, count: int, log_lock: int, announce: Callable[[Address], None]) -> int:
    """Run `count` workers until SIGTERM, SIGHUP, SIGQUIT or Ctrl-C; return the exit code.

    `log_lock` is an open file; who holds it may write a line of the log. `announce` is called with the address of all
    of them as soon as one answers there.

    Raises:
        UsageError: a port is taken, or the host is no address of this machine.
    """
    host, port, probes_port = settings.http.host, settings.http.port, settings.http.probes_port
    with ExitStack() as held:
        found = [held.enter_context(reserve(host, port and port + number, PORT_HINT)) for number in range(count + 1)]
        ports = [each.getsockname()[1] for each in found]
        probes_ports = [probes_port + number for number in range(count + 1)] if probes_port else []
        if both := sorted(set(ports) & set(probes_ports)):
            raise UsageError(f"port {both[0]} is one of http.port and one of http.probes_port", hint=PROBES_HINT)
        for each in probes_ports:
            held.enter_context(reserve(host, each, PROBES_HINT))
        return Parent(settings, ports, probes_ports, log_lock, announce).run()


class _Place:
    """One worker, over any number of restarts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.began_at = self.start_at = time.monotonic()
        self.pause = 0.0


class Parent:
    """Starts, watches and ends the workers, in the main thread."""

    def __init__(
        self,
        settings: Settings,
        ports: Sequence[int],
        probes_ports: list[int],
        log_lock: int,
        announce: Callable[[Address], None],
    ) -> None:
        """Take the port of all, then one for each worker; the same for the probes, or none."""
        self._app_port, *self._ports = ports
        self._probes_ports = probes_ports
        self._address = address(settings.http, settings.http.host, self._app_port)
        self._announce: Callable[[Address], None] | None = announce
        self._within_seconds = settings.timeouts.shutdown_ms / 1000
        # Static membership: a worker that is started again has its partitions at once.
        self._name = Identity.of_this_process(settings.instance_id).instance_id
        self._places = [_Place(number) for number in range(len(self._ports))]
        self._log_lock = log_lock
        self._deadline: float | None = None
        self._code = 0

    def run(self) -> int:
        """Run until all have ended; return the exit code."""
        try:
            with _heard() as signals:
                while self._deadline is None or self._running:
                    self._start_due()
                    for number in _next(signals, self._pause()):
                        self._hear(number)
                    self._reap()
                    self._look()
        finally:
            for each in self._running:
                each.kill()
                each.wait()
        log.info("stopped")
        return self._code

    @property
    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [each.process for each in self._places if each.process is not None]

    def _start_due(self) -> None:
        now = time.monotonic()
        for each in self._places:
            if each.process is None and each.start_at <= now and self._deadline is None:
                each.began_at, each.process = now, self._started(each)

    def _started(self, place: _Place) -> subprocess.Popen[bytes]:
        name = f"{self._name}-{place.number}"
        ports = self._ports, self._app_port, self._probes_ports
        facts = Worker(os.getpid(), place.number, place.restarts, name, *ports, self._log_lock)
        return subprocess.Popen(
            [*child_process.command("snapreplay.api.cli.worker"), facts.encoded(), *sys.argv[1:]],
            stdin=subprocess.DEVNULL,
            pass_fds=(self._log_lock,),
            env=child_process.environment(os.environ),
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops them
        )

    def _pause(self) -> float | None:
        """Return for how long there is nothing to do; None: until a signal."""
        if self._announce is not None:
            return LOOK_SECONDS
        if self._deadline is not None:
            return max(0.0, self._deadline - time.monotonic())
        waiting = [each.start_at for each in self._places if each.process is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _hear(self, number: int) -> None:
        if number in DUMPS:
            self._tell(number)
        elif number in STOPS:
            log.info("%s: all workers stop", signal.Signals(number).name)
            self._stop()

    def _tell(self, number: int) -> None:
        for each in self._running:
            os.kill(each.pid, number)  # it is not reaped yet, so the number is its own

    def _stop(self) -> None:
        self._tell(signal.SIGTERM)
        if self._deadline is None:
            self._deadline = time.monotonic() + self._within_seconds + CUT_OFF_SECONDS

    def _reap(self) -> None:
        """Reap those that have ended; as process 1 of a container also what workers left behind."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for each in self._places:
                    if each.process is not None and each.process.pid == ended[0]:
                        each.process.returncode, each.process = os.waitstatus_to_exitcode(ended[1]), None
                        self._ended(each, os.waitstatus_to_exitcode(ended[1]))

    def _ended(self, place: _Place, code: int) -> None:
        from snapreplay.api.cli.exits import ExitCode

        why = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        if self._deadline is not None:
            asked_for = code in (0, -signal.SIGTERM)
            if not asked_for:
                log.error("worker %d ended while all stop: %s", place.number, why)
            self._code = max(self._code, 0 if asked_for else code if code > 0 else ExitCode.FINDINGS)
        elif code in (ExitCode.REFUSED, ExitCode.OPERATOR) and not (place.restarts and self._running):
            log.error("worker %d ended, and a restart would find the same: %s; all workers stop", place.number, why)
            self._code = code
            self._stop()
        else:
            # A worker that was restarted may be refused for a half-written file. The others process meanwhile.
            now = time.monotonic()
            is_new = now - place.began_at > LONG_LIFE_SECONDS or not place.pause
            place.pause = PAUSE_SECONDS_MIN if is_new else min(2 * place.pause, PAUSE_SECONDS_MAX)
            place.restarts, place.start_at = place.restarts + 1, now + place.pause
            told = "worker %d ended: %s; restart %d follows in %.1f s"
            log.error(told, place.number, why, place.restarts, place.pause)

    def _look(self) -> None:
        """Look whether somebody answers, and whether somebody is late."""
        if self._announce is not None and _listens(self._address):
            self._announce(self._address)
            self._announce = None
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._deadline += CUT_OFF_SECONDS
            for each in self._places:
                if each.process is not None:
                    log.critical("worker %d has not stopped: process %d is killed", each.number, each.process.pid)
                    each.process.kill()
                    self._code = STOPPED_LATE


def _listens(address: Address) -> bool:
    from urllib.parse import urlsplit

    with suppress(OSError), socket.create_connection((urlsplit(address.url).hostname, address.port)):
        return True
    return False


@contextmanager
def _heard() -> Iterator[int]:
    """Hear signals through a file. A SIGHUP that is ignored stays so, also in the workers."""
    reading, writing = os.pipe()
    for each in (reading, writing):
        os.set_blocking(each, False)
    numbers = [
        each
        for each in (*STOPS, *DUMPS, signal.SIGCHLD)
        if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN
    ]
    former = {each: signal.signal(each, lambda *_: None) for each in numbers}
    former_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(former_fd)
        for number, handler in former.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _next(signals: int, pause: float | None) -> bytes:
    """Return the numbers of the signals that have come; wait for one, but no longer than this."""
    return os.read(signals, 64) if select.select([signals], [], [], pause)[0] else b""
