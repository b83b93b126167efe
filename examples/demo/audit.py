"""Spark's verdict over what was written: `snapreplay audit`, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.demo.commands import snapreplay, tail
from examples.demo.failed import DemoFailed
from examples.demo.verify import Findings

AUDIT_S = 180.0


def check_possible() -> None:
    """
    Raises:
        DemoFailed: there is no Java, which Spark needs.
    """
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        raise DemoFailed(
            "the Spark audit needs Java 17 or newer, and there is no java command:\n"
            "apt-get install openjdk-17-jre-headless, or --skip-audit"
        )


class Audit:
    """Started by `with`, which also ends it; `verdict` waits."""

    def __init__(self, bootstrap_servers: str, app_id: str, work_dir: Path) -> None:
        options = [f"--app-id={app_id}", f"--bootstrap-servers={bootstrap_servers}"]
        self._command = snapreplay("audit", *options, "--output=json")
        self._work_dir = work_dir
        self._said, self._log = work_dir / "audit.json", work_dir / "audit.log"
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

    def verdict(self) -> tuple[Findings, str]:
        """What it found, and what it looked at in one line.

        Raises:
            DemoFailed: it could not run, or not to its end in time; with the end of its log.
        """
        if self._process is None:
            raise AssertionError("the audit was not started")
        try:
            code = self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"the audit did not end within {AUDIT_S:.0f} s") from error
        said = self._said.read_text()
        if code not in (0, 1) or not said:
            raise DemoFailed(f"the audit could not run: {code}\n{tail(self._log)}")
        return read_report(said, code)


def read_report(said: str, code: int) -> tuple[Findings, str]:
    """From what the command printed, and its exit code, to its findings and a summary.

    Raises:
        DemoFailed: that is no report, or code and report contradict each other.
    """
    try:
        report: dict[str, Any] = json.loads(said)
        found: list[dict[str, Any]] = report["findings"]
        checked: dict[str, int] = report["checked"]
    except (ValueError, KeyError) as error:
        raise DemoFailed(f"the audit ended with {code} but printed no report: {said!r}") from error
    if bool(found) != bool(code) or not checked:
        raise DemoFailed(f"the audit ended with {code}, its report says: {said}")
    findings = Findings()
    for each in found:
        place = f"{each['topic']}-{each['partition']} offset {each['offset']}"
        findings.add(f"{each['check']}: {place}: {each['detail']}")
    return findings, ", ".join(f"{count:,} {name}" for name, count in checked.items() if count)
