"""The service of a `RealHarness` as its parent sees it: started, asked, killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from snapreplay.errors import StopError, UsageError
from snapreplay.testing.real_messages import (
    Acknowledged,
    Answer,
    Failed,
    Order,
    Request,
    StateRead,
    decode_answer,
    read_frame,
    write_frame,
)

LATER_S = 15.0
"""The process gives up by itself at its deadline; after this much longer it counts as hanging."""
_LOG_CHARACTERS = 3000


class ServiceEnded(StopError):
    """The service process ended by itself, refused to start, hangs, or has a FAILED partition."""


class ServiceProcess:
    """The process of a service, at most one at a time, over any number of restarts."""

    def __init__(self, app_id: str, log_path: Path) -> None:
        """Take `app_id` for messages."""
        self._app_id = app_id
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = asyncio.Lock()

    @property
    def log(self) -> str:
        """Its standard error so far, over all restarts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    @property
    def pid(self) -> int:
        """The pid of the process that runs now."""
        return self._running().pid

    def launch(self, order: Order) -> None:
        """Launch the process; blocks for some milliseconds."""
        if self._process is not None:
            raise UsageError(f"{self._app_id} runs already")
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "snapreplay.testing.real_service"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._say(order)

    async def ask(self, request: Request) -> Acknowledged | StateRead:
        """Ask the service process.

        Raises:
            ServiceEnded: the service answers with an error, has ended, or hangs; then it is killed.
            UsageError: it does not run.
        """
        async with self._asking:
            try:
                async with asyncio.timeout(request.deadline_s + LATER_S):
                    answer = await asyncio.to_thread(self._answer, request)
            except (TimeoutError, OSError) as error:
                raise self._ended(request, error) from error
        match answer:
            case Failed(kind, message, hint):
                raise ServiceEnded(f"{self._app_id}: {kind}: {message}", hint=hint)
            case Acknowledged() | StateRead():
                return answer

    def kill(self) -> None:
        """Send SIGKILL; return when the process is gone. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what it did not read is lost with it
                        pipe.close()

    def _answer(self, request: Request) -> Answer:
        """Ask and read the answer; blocks."""
        self._say(request)
        pipe = self._running().stdout
        frame = read_frame(pipe) if pipe else None
        if frame is None:
            raise BrokenPipeError
        return decode_answer(frame)

    def _say(self, message: Order | Request) -> None:
        pipe = self._running().stdin
        if pipe is not None:
            with suppress(BrokenPipeError):  # its end is seen where the answer is read
                write_frame(pipe, message)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError(
                f"{self._app_id} does not run", hint="`await harness.restart()` starts it again"
            )
        return self._process

    def _ended(self, request: Request, error: BaseException) -> ServiceEnded:
        self.kill()
        what = "ended by itself"
        if isinstance(error, TimeoutError):
            what = f"gave no answer within {request.deadline_s + LATER_S:g} s and was killed"
        return ServiceEnded(
            f"{self._app_id}: not {request.done}: the service process {what}; its log ends"
            f" with\n{self.log[-_LOG_CHARACTERS:]}"
        )
