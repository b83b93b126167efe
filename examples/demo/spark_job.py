"""A command of snapreplay that runs Spark, in a process of its own beside everything else."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.demo.commands import snapreplay
from examples.demo.failed import DemoFailed
from snapreplay.java import JavaUnavailable, find_java

JOB_S = 600.0
TELL_S = 15.0


class NotFinished(Exception):
    """There is no result; the text is one line. That says nothing against the topics."""


def check_possible() -> None:
    """Raise DemoFailed if there is no Java, which Spark needs."""
    try:
        find_java("the Spark audit")
    except JavaUnavailable as error:
        raise DemoFailed(f"{error.message}:\n{error.hint}, or --skip-audit") from error


class SparkJob:
    """A command that is started by `with`, which also ends it; `result` waits. `name` is the command's: audit,
    compact."""

    def __init__(self, name: str, options: list[str], work_dir: Path) -> None:
        self.name = name
        self._command = snapreplay(name, *options, "--output=json")
        self._work_dir = work_dir
        self._said, self._log = work_dir / f"{name}.json", work_dir / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + JOB_S
        # What Spark leaves in them when it is ended is removed with the directory.
        folders = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), str(self._work_dir))
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=self._work_dir,
                env={**os.environ, **folders},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.runs and self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.process.kill()
            self.process.wait()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def result(self, tell: Callable[[str], None]) -> tuple[str, int]:
        """Return what it printed, and its exit code: 0 or 1. `tell` is called with how long it takes.

        Raises:
            NotFinished: it could not run, or did not end in time.
        """
        code = self._wait(tell)
        said = self._said.read_text()
        if code not in (0, 1) or not said:
            raise NotFinished(f"it could not run (exit code {code}): {last_error(self._log)}")
        return said, code

    def _wait(self, tell: Callable[[str], None]) -> int:
        if self.process is None:
            raise AssertionError(f"{self.name} was not started")
        while True:
            left_s = max(0.0, self._deadline - time.monotonic())
            tell(f"waiting for Spark's {self.name}, {JOB_S - left_s:.0f} s of at most {JOB_S:.0f}")
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(min(left_s, TELL_S))
            if not left_s:
                raise NotFinished(f"it did not end within {JOB_S:.0f} s, so its result is not known")


def last_error(log: Path) -> str:
    """Return the line in which the command said why, else the log's last one."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["it said nothing"]
    return next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1])
