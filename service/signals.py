"""Signals of a process that runs one service. They are heard although a handler blocks the loop, and a stop ends."""

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
from itertools import chain
from types import FrameType
from typing import Self

log = logging.getLogger("snapreplay")

STOPPED_LATE = 6  # the exit code of a process that was cut off
LATE_SECONDS = 2.0  # of the graceful stop, which has its own deadlines
TOLD_SECONDS = 1.0
FRAMES_MAX = 12
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DUMPS = (signal.SIGUSR1, signal.SIGUSR2)

_active: dict[int, tuple[int, int]] = {}
"""Both ends of the pipe of this process; a forked one has the handlers too, and would write its signals into our
pipe."""

_LEFT = 0
"""Written when the block is left. An end of file would not come while a forked process has the pipe."""

_HANDLED = 0x80
"""Marks the numbers that a handler has written; those of the wakeup file come without it, and first."""


class Signals:
    """The signals of a process, for the length of a `with` block in the main thread. SIGTERM, SIGINT, SIGHUP and
    SIGQUIT call `stop` in the loop; a process that has not left the block by the deadline is ended. SIGUSR1 and
    SIGUSR2 log what every thread and task does. A SIGHUP that is ignored, as under `nohup`, stays so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], within_seconds: float) -> None:
        self._loop = loop
        self._stop = stop
        self._within_seconds = within_seconds
        self._deadline: float | None = None
        self._former: dict[signal.Signals, object] = {}
        self._early: set[int] = set()
        self._thread = threading.Thread(target=self._listen, name="snapreplay-signals", daemon=True)

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._former_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (*STOPS, *DUMPS):
            if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
                self._former[number] = signal.signal(number, _heard)
        _active[os.getpid()] = (self._reading, self._writing)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if _active.pop(os.getpid(), None) is None:
            return  # a forked child leaves the block, and has neither the thread nor a right to the pipe
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._former_fd)
        os.set_blocking(self._writing, True)
        os.write(self._writing, bytes([_LEFT]))
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _listen(self) -> None:
        while True:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if not select.select([self._reading], [], [], left)[0]:
                self._end()
            numbers = os.read(self._reading, 64)
            for number in numbers:
                if number == _LEFT:
                    return
                self._sort(number & ~_HANDLED, is_handled=bool(number & _HANDLED))

    def _sort(self, number: int, *, is_handled: bool) -> None:
        """Sort out repeats: a signal comes through the wakeup file, at once, and later, but always, by its handler."""
        if number not in (*STOPS, *DUMPS):
            return  # the wakeup file has those of other handlers, too, also such without a name
        if is_handled and number in self._early:
            self._early.discard(number)
            return
        if not is_handled:
            self._early.add(number)
        self._hear(signal.Signals(number))

    def _hear(self, number: signal.Signals) -> None:
        if number in DUMPS:
            head = f"{number.name}: what every thread and task does"
            _tell(logging.WARNING, [head, *activity(self._loop)])
        elif number in STOPS and self._deadline is None:
            self._deadline = time.monotonic() + self._within_seconds + LATE_SECONDS
            with suppress(RuntimeError):  # the loop is closed: the block ends anyway
                self._loop.call_soon_threadsafe(self._stop)
            told = f"{number.name}: stops gracefully, within {self._within_seconds:.1f} s"
            _tell(logging.INFO, [told])
        elif number in STOPS and self._deadline is not None:
            left = self._deadline - time.monotonic()
            told = f"{number.name}: it is stopping, and is ended in {left:.1f} s at the latest"
            _tell(logging.INFO, [told])

    def _end(self) -> None:
        """End the process; the log has everything that was committed. What is lost is the last snapshot."""
        head = (
            f"not stopped within timeouts.shutdown_ms + {LATE_SECONDS:.0f} s: the process ends now, with exit code"
            f" {STOPPED_LATE}; nothing that was committed is lost, and the next start takes longer. What kept it:"
        )
        _tell(logging.CRITICAL, [head, *activity(self._loop)])
        os._exit(STOPPED_LATE)


def _tell(level: int, lines: Sequence[str]) -> None:
    """Log the lines. The signals do not wait longer than a second for a log that nobody reads."""

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


def _heard(number: int, _frame: FrameType | None) -> None:
    """Write the number, unless it is in the pipe already; `loop.add_signal_handler` may have taken the wakeup file."""
    if (pipe := _active.get(os.getpid())) is not None:
        with suppress(BlockingIOError):  # full: the process has not been listening for long
            os.write(pipe[1], bytes([number | _HANDLED]))


class _Forking(threading.local):
    """The signals of a thread that forks wait, or they would reach the new process before it has forgotten ours."""

    before: set[signal.Signals | int] | None = None

    def block(self) -> None:
        if _active:
            self.before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, *DUMPS))

    def go_on(self) -> None:
        if self.before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            self.before = None

    def forget(self) -> None:
        """Forget the services in a worker that a handler has forked: signals end it as they end any process."""
        if _active:
            for end in chain.from_iterable(_active.values()):
                os.close(end)
            _active.clear()
            signal.set_wakeup_fd(-1)
            for number in (*STOPS, *DUMPS):
                if signal.getsignal(number) is _heard:
                    signal.signal(number, signal.SIG_DFL)
        self.go_on()


_forking = _Forking()
os.register_at_fork(before=_forking.block, after_in_parent=_forking.go_on, after_in_child=_forking.forget)
