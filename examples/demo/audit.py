"""Spark's verdict over what was written: `snapreplay audit`, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.demo.commands import snapreplay
from examples.demo.failed import DemoFailed
from examples.demo.verify import Findings
from snapreplay.jars.java import JavaUnavailable, find_java

AUDIT_S = 600.0
TELL_S = 15.0
LOG = "audit.log"


class NotFinished(Exception):
    """There is no verdict; the text is one line. That says nothing against the topics."""


def check_possible() -> None:
    """
    Raises:
        DemoFailed: there is no Java, which Spark needs.
    """
    try:
        find_java("the Spark audit")
    except JavaUnavailable as error:
        raise DemoFailed(f"{error.message}:\n{error.hint}, or --skip-audit") from error


class Audit:
    """Started by `with`, which also ends it; `verdict` waits."""

    def __init__(self, bootstrap_servers: str, app_id: str, work_dir: Path) -> None:
        options = [f"--app-id={app_id}", f"--bootstrap-servers={bootstrap_servers}"]
        self._command = snapreplay("audit", *options, "--output=json")
        self._work_dir = work_dir
        self._said, self._log = work_dir / "audit.json", work_dir / LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + AUDIT_S
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._work_dir,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process.kill()
            self._process.wait()

    def verdict(self, tell: Callable[[str], None]) -> tuple[Findings, str]:
        """Return what it found, and what it checked in one line. `tell` is told how long it takes.

        Raises:
            NotFinished: it could not run, or did not end in time.
            DemoFailed: its report contradicts its exit code.
        """
        code = self._wait(tell)
        said = self._said.read_text()
        if code not in (0, 1) or not said:
            raise NotFinished(f"it could not run (exit code {code}): {last_error(self._log)}")
        return read_report(said, code)

    def _wait(self, tell: Callable[[str], None]) -> int:
        if self._process is None:
            raise AssertionError("the audit was not started")
        while (left_s := self._deadline - time.monotonic()) > 0:
            tell(f"waiting for Spark's audit, {AUDIT_S - left_s:.0f} s of at most {AUDIT_S:.0f}")
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(min(left_s, TELL_S))
        raise NotFinished(f"it did not end within {AUDIT_S:.0f} s, so its result is not known")


def last_error(log: Path) -> str:
    """The line in which `snapreplay audit` said why, else the log's last one."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["it said nothing"]
    return next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1])


def read_report(said: str, code: int) -> tuple[Findings, str]:
    """Return findings and a summary, from what the command printed and its exit code.

    Raises:
        DemoFailed: there is no report, or code and report contradict each other.
    """
    try:
        report: dict[str, Any] = json.loads(said)
        found: list[dict[str, Any]] = report["findings"]
        checked: dict[str, int] = report["checked"]
    except (ValueError, KeyError) as error:
        raise DemoFailed(f"the audit ended with {code} but printed no report: {said!r}") from error
    if bool(found) != bool(code) or not checked:
        raise DemoFailed(f"the audit ended with {code}, but its report says: {said}")
    findings = Findings()
    for each in found:
        place = f"{each['topic']}-{each['partition']} offset {each['offset']}"
        findings.add(f"{each['check']}: {place}: {each['detail']}")
    return findings, ", ".join(f"{count:,} {name}" for name, count in checked.items() if count)
