"""Answers of a service process whose event loop may stand still: a handler that sleeps, waits or computes for ever."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO

from snapreplay.app.user_modules import is_own
from snapreplay.testing.real_messages import Answer, Failed, Request, write_frame

TURN_S = 1.0
"""A loop that does not turn within this time stands still."""


def package_of(app_name: str) -> str:
    """Return the top-level name of a module:app or path/to/file.py:app."""
    place = app_name.rpartition(":")[0]
    return Path(place).stem if place.endswith(".py") else place.partition(".")[0]


class Answerer:
    """Gives each request one answer: the service's own, or where the loop stands if it does not turn at the
    deadline."""

    def __init__(self, pipe: IO[bytes], loop: asyncio.AbstractEventLoop, package: str) -> None:
        """Take `package`: the top-level name of the author's modules. To be made in the thread of the loop."""
        self._pipe = pipe
        self._loop = loop
        self._package = package
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._open: Request | None = None

    def begin(self, request: Request) -> None:
        self._open = request
        watch = threading.Timer(request.deadline_s, self._look, [request])
        watch.daemon = True
        watch.start()

    def give(self, request: Request, answer: Answer) -> None:
        """Give the answer, unless there was one before: the first answer counts."""
        with self._lock:
            if self._open is request:
                self._open = None
                write_frame(self._pipe, answer)

    def _look(self, request: Request) -> None:
        """Look in a thread of its own: what the loop does is seen from outside only."""
        while self._turns():
            if self._open is not request:
                return
            time.sleep(TURN_S)  # between two looks; the service has deadlines of its own
        said = f"not {request.done} within {request.deadline_s:g} s"
        blocked = Failed(
            kind="StandsStill",
            message=f"{said}: the service has stood still at {self._place()}",
            hint="a handler must not wait: nothing else runs meanwhile; or give it more time with"
            " `RealHarness(…, deadline_s=…)`",
        )
        self.give(request, blocked)

    def _turns(self) -> bool:
        turned = threading.Event()
        self._loop.call_soon_threadsafe(turned.set)
        return turned.wait(TURN_S)

    def _place(self) -> str:
        """Return the innermost line of the author's code, or of any code."""
        frames = list(traceback.walk_stack(sys._current_frames()[self._thread_id]))  # noqa: SLF001 - documented, for debugging
        own = [
            (frame, line)
            for frame, line in frames
            if is_own(str(frame.f_globals.get("__name__", "")), [self._package])
        ]
        frame, line = (own or frames)[0]
        return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{line})"
