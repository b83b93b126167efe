"""A process of a service that a test starts, asks and kills. They exchange frames of msgpack over two pipes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from snapreplay.errors import StopError, UsageError
from snapreplay.state.cursor import Slices

T = TypeVar("T")

LATER_S = 5.0
"""The process gives up by itself at its deadline; after this much longer it counts as hanging."""
_LOG_CHARACTERS = 4000
_LENGTH_BYTES = 4


class Order(msgspec.Struct, frozen=True):
    """The first frame, which starts the service of an app. Its id and the names of its topics get the prefix."""

    app: str
    prefix: str
    partition_count: int
    settings: dict[str, Any]


Ends = dict[tuple[str, int], int]
"""Topic and partition of an input → the offset after its last record. Inputs without a record are left out."""


class Ask(StrEnum):
    """Requests to a service; the text completes "not …" in errors.

    CAUGHT_UP returns at once what is `behind` `ends`.
    """

    LIVE = "live"
    CAUGHT_UP = "caught up"
    ENDS = "able to say where the inputs end"
    READ = "read"
    STOPPED = "stopped"


class Request(msgspec.Struct, frozen=True):
    """One request, with the time that it may take. `internal`: only inputs that are internal topics."""

    done: Ask
    deadline_s: float
    partition: int = 0
    internal: bool = False
    ends: Ends = {}


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The answer to a request. Only the fields that the request asks for are set."""

    live: list[int] = []
    behind: str = ""
    ends: Ends = {}
    slices: Slices = []
    stream_time_ms: int = -1


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An error of the service; `kind` is its class."""

    kind: str
    message: str
    hint: str


Answer = Answered | Failed
# Made at import: two harnesses of a process have threads of their own, and msgspec 0.22 crashes the interpreter if two
# threads are the first to decode a type.
answer_in: Callable[[bytes], Answer] = msgspec.msgpack.Decoder(Answer).decode
order_in = msgspec.msgpack.Decoder(Order).decode
request_in = msgspec.msgpack.Decoder(Request).decode


def write_frame(pipe: IO[bytes], message: Order | Request | Answer) -> None:
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def read_frame(pipe: IO[bytes], decode: Callable[[bytes], T]) -> T | None:
    """Read a frame; None at the end of the pipe, and for a frame that its writer did not finish."""
    length = int.from_bytes(pipe.read(_LENGTH_BYTES), "big")
    data = pipe.read(length)
    return decode(data) if length and len(data) == length else None


class ServiceEnded(StopError):
    """The service process ended by itself, refused to start, hangs, or has a FAILED partition.

    Safe: Only the broker of the test is affected; with a prefix, only the topics that have it.
    """


class ServiceProcess:
    """The process of a service, at most one at a time, over any number of restarts."""

    def __init__(self, app_id: str, log_path: Path, order: Order) -> None:
        """Take `app_id` for messages."""
        self._app_id = app_id
        self._log_path = log_path
        self._order = order
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

    @property
    def is_running(self) -> bool:
        """Whether it was launched and not killed; it may have ended by itself."""
        return self._process is not None

    def launch(self) -> None:
        """Start the process, and the service in it. Not while it runs."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "snapreplay.testing.real_service"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._say(self._order)

    async def ask(self, request: Request) -> Answered:
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
            case Answered():
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
        self._say(request)
        pipe = self._running().stdout
        answer = read_frame(pipe, answer_in) if pipe else None
        if answer is None:
            raise BrokenPipeError
        return answer

    def _say(self, message: Order | Request) -> None:
        pipe = self._running().stdin
        if pipe is not None:
            with suppress(BrokenPipeError):  # its end is seen where the answer is read
                write_frame(pipe, message)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError(f"{self._app_id} does not run", hint="`await harness.restart()` starts it again")
        return self._process

    def _ended(self, request: Request, error: BaseException) -> ServiceEnded:
        self.kill()
        what, hint = "ended by itself", ""
        if isinstance(error, TimeoutError):
            what = f"gave no answer within {request.deadline_s + LATER_S:g} s and was killed"
            hint = (
                "a handler must not wait: nothing else runs meanwhile; or give it more time with"
                " `RealHarness(…, deadline_s=…)`"
            )
        return ServiceEnded(
            f"{self._app_id}: not {request.done}: the service process {what}; its log ends"
            f" with\n{self.log[-_LOG_CHARACTERS:]}",
            hint=hint,
        )
