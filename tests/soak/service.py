"""A service process that can be killed and started again under its name."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snapreplay.devbroker.process import KeptProcess
from tests.checker.app import APP_ID
from tests.checker.outcomes import OUTCOMES

PROGRAM = Path(__file__).with_name("program.py")
TASKS = "SOAK_TASKS"
"""Path of a file in which a process keeps one number: its asyncio tasks."""
ANSWER_S = 5.0
STOP_S = 40.0
SETTINGS: Mapping[str, object] = {
    "group.session_timeout_ms": 3000,
    "group.heartbeat_interval_ms": 300,
    "restore.retry_backoff_ms": 100,
    "restore.retry_backoff_max_ms": 3000,
    "snapshot.every_records": 2000,
}
"""A killed member is noticed in seconds, and each restore has some batches to bring forward."""


class Service:
    """One name in the group; `incarnation` counts its processes from 0.

    Attributes:
        pid: of the process that runs now, or ran last.
        tasks_path: where it writes how many asyncio tasks it has.
    """

    def __init__(self, name: str, bootstrap_servers: str, app_id: str, folder: Path) -> None:
        self.name = name
        self.incarnation = -1
        self.pid = 0
        self.started_at = 0.0
        self._servers = bootstrap_servers
        self._app_id = app_id
        self._folder = folder
        self.tasks_path = folder / f"{name}.tasks"
        work_dir = folder / f"keeper-{name}"
        work_dir.mkdir(parents=True)
        self._kept = KeptProcess(work_dir)
        self.up = False

    @property
    def url(self) -> str | None:
        """As it says in its log; None while it has not."""
        found = re.findall(r"HTTP API: (http://[^\s/]+)", self._log.read_text(errors="replace"))
        return found[0] if found else None

    def start(self) -> None:
        self.incarnation += 1
        self.tasks_path.unlink(missing_ok=True)
        self._log.touch()
        self.pid = self._kept.run(self._command(), self._log)
        self.started_at = time.monotonic()
        self.up = True

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.up = False
        self._kept.end(0.0)

    def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        self.up = False
        return self._kept.end(STOP_S)

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._kept.exit_code()

    def close(self) -> None:
        """SIGKILL if it still runs."""
        self.up = False
        self._kept.close()

    def partitions(self) -> list[Any]:
        """/restore-status; empty while it does not answer."""
        url = self.url
        if url is None:
            return []
        try:
            with urllib.request.urlopen(f"{url}/restore-status", timeout=ANSWER_S) as answer:  # noqa: S310 - our own process
                return list(json.load(answer)["partitions"])
        except (urllib.error.URLError, OSError):
            return []

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}-{self.incarnation}.log"

    def _command(self) -> list[str]:
        """`env` sets the variables and becomes the service: one process id."""
        return [
            "env",
            f"{APP_ID}={self._app_id}",
            f"{OUTCOMES}={self._folder / 'outcomes.jsonl'}",
            f"{TASKS}={self.tasks_path}",
            *(sys.executable, "-m", "snapreplay.api.cli", "run", str(PROGRAM)),
            *("--bootstrap-servers", self._servers, "--http-port", "0"),
            f"--set=instance_id={self.name}",
            *(f"--set={key}={value}" for key, value in SETTINGS.items()),
        ]
