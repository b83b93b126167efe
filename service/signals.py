"""Signals of a process that runs one service: handled even while the main thread is blocked, and a stop ends."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn, Self

log = logging.getLogger("snapreplay")

STOPPED_LATE = 6  # the exit code of a process that was cut off
LATE_SECONDS = 2.0  # of the graceful stop, which has its own deadlines
TOLD_SECONDS = 1.0
FRAMES_MAX = 12
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DUMP = signal.SIGUSR1

_LEFT = 0
"""Written when the block is left: an end of file would not come while a forked process has the pipe."""
_HANDLED = 0x80
"""Marks the numbers that the handler has written. Those that Python's C handler has written come without it, first."""

_active: list[Signals] = []


class _Forking(threading.local):
    """The signals of a thread that forks wait until the new process has forgotten the pipe. Else they would reach the
    service, and Python would drop them in the new process."""

    before: set[signal.Signals | int] | None = None

    def block(self) -> None:
        if _active:
            self.before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, DUMP))

    def unblock(self) -> None:
        if self.before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            self.before = None

    def forget(self) -> None:
        """Let a worker end as any process. Python runs a handler between two steps only: a worker that is about to
        sleep would sleep on."""
        if _active:
            signal.set_wakeup_fd(-1)
        for each in _active:
            each.restore_defaults()
        self.unblock()


_forking = _Forking()
os.register_at_fork(before=_forking.block, after_in_parent=_forking.unblock, after_in_child=_forking.forget)


class Signals:
    """The signals of a process, for the length of a `with` block in the main thread. SIGTERM, SIGINT, SIGHUP and
    SIGQUIT call `stop` in the loop; a process that has not left the block by the deadline is ended. SIGUSR1 logs what
    every thread and task does. A SIGHUP that is ignored, as under `nohup`, stays so.

    A thread reads the signals from a pipe, Python's wakeup file: while the main thread is in C, as in a query of a
    database or a product of matrices, Python calls no handler. The handler writes there too: an event loop with a
    signal handler of the app's has another wakeup file.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], within_seconds: float) -> None:
        self._loop, self._stop, self._within_seconds = loop, stop, within_seconds
        self._deadline: float | None = None
        self._former: dict[signal.Signals, object] = {}
        self._early: set[int] = set()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._listen, name="snapreplay-signals", daemon=True)

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._former_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        _active.append(self)
        for number in (*STOPS, DUMP):
            if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
                self._former[number] = signal.signal(number, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._pid:
            return  # a forked worker leaves its copy of the block
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._former_fd)
        _active.remove(self)
        os.set_blocking(self._writing, True)
        os.write(self._writing, bytes([_LEFT]))
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def restore_defaults(self) -> None:
        for number in self._former:
            signal.signal(number, signal.SIG_DFL)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):  # full: the thread has not been reading for long
            os.write(self._writing, bytes([number | _HANDLED]))

    def _listen(self) -> None:
        while True:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if not select.select([self._reading], [], [], left)[0]:
                self._end()
            for byte in os.read(self._reading, 64):
                if byte == _LEFT:
                    return
                number, is_handled = byte & ~_HANDLED, bool(byte & _HANDLED)
                if is_handled and number in self._early:
                    self._early.remove(number)
                elif number in self._former:  # the wakeup file has the signals of other handlers, too
                    if not is_handled:
                        self._early.add(number)
                    self._react(signal.Signals(number))

    def _react(self, number: signal.Signals) -> None:
        if number is DUMP:
            head = f"{number.name}: what every thread and task does"
            _tell(logging.WARNING, [head, *activity(self._loop)])
        elif self._deadline is None:
            self._deadline = time.monotonic() + self._within_seconds + LATE_SECONDS
            with suppress(RuntimeError):  # the loop is closed: the block ends anyway
                self._loop.call_soon_threadsafe(self._stop)
            _tell(logging.INFO, [f"{number.name}: stops gracefully, within {self._within_seconds:.1f} s"])
        else:
            left = self._deadline - time.monotonic()
            _tell(logging.INFO, [f"{number.name}: stopping already, and forced to exit in {left:.1f} s at the latest"])

    def _end(self) -> NoReturn:
        """End the process; the log has everything that was committed. What is lost is the last snapshot."""
        head = (
            f"not stopped within timeouts.shutdown_ms + {LATE_SECONDS:.0f} s: the process ends now, with exit code"
            f" {STOPPED_LATE}; nothing that was committed is lost, and the next start takes longer. What delayed it:"
        )
        _tell(logging.CRITICAL, [head, *activity(self._loop)])
        os._exit(STOPPED_LATE)


def _tell(level: int, lines: Sequence[str]) -> None:
    """Log the lines. The signals do not wait longer than a second for a log that is not read."""

    def write() -> None:
        for line in lines:
            log.log(level, "%s", line)
        for handler in logging.getLogger().handlers:
            handler.flush()

    teller = threading.Thread(target=write, name="snapreplay-signals-log", daemon=True)
    teller.start()
    teller.join(TOLD_SECONDS)


def activity(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    """Yield a line for each thread and each task of the loop, the innermost call first. From any thread."""
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to see other threads
    for thread in threading.enumerate():
        if thread.ident in frames and thread is not threading.current_thread():
            stack = traceback.extract_stack(frames[thread.ident])
            yield f"thread {thread.name}: {_line(stack)}"
    with suppress(RuntimeError):  # tasks come and go meanwhile
        for task in sorted(asyncio.all_tasks(loop), key=lambda each: each.get_name()):
            yield f"task {task.get_name()}: {_line(_awaited(task))}"


def _line(stack: traceback.StackSummary) -> str:
    calls = [f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in stack[::-1]]
    more = f" < {len(calls) - FRAMES_MAX} more" if len(calls) > FRAMES_MAX else ""
    return " < ".join(calls[:FRAMES_MAX]) + more


def _awaited(task: asyncio.Task[object]) -> traceback.StackSummary:
    """Follow what a task awaits: `Task.get_stack` shows only the outermost coroutine of a task that waits."""
    coroutine: object = task.get_coro()
    frames = []
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = getattr(coroutine, "cr_await", None)
    return traceback.StackSummary.extract(frames)
