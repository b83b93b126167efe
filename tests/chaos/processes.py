"""Service processes with names of their own, each behind its own wires, started and ended at will."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from snapreplay.devbroker.process import KeptProcess
from tests.chaos import detour
from tests.chaos.timeline import Timeline
from tests.chaos.wires import Bundle, Wires

PROGRAM = Path(__file__).with_name("program.py")
APP_ID, OUTCOMES = "SNAPREPLAY_CHECKED_APP_ID", "SNAPREPLAY_OUTCOMES"
"""What `tests.checker.app` and `tests.checker.outcomes` look at."""

ANSWER_S = 2.0
NO_ANSWER = (httpx2.HTTPError, LookupError, RuntimeError)
"""RuntimeError: another thread has just ended the process and closed its client."""

STOP_S = 45.0
POLL_S = 0.02

SETTINGS: Mapping[str, object] = {
    "group.session_timeout_ms": 3000,
    "group.heartbeat_interval_ms": 300,
    "group.rebalance_timeout_ms": 8000,
    "timeouts.revoke_ms": 4000,
    "timeouts.transaction_ms": 8000,
    "timeouts.commit_ms": 4000,
    "timeouts.fence_ms": 4000,
    "timeouts.metadata_ms": 20_000,
    "timeouts.progress_ms": 20_000,
    "kafka.request.timeout.ms": 2000,
    "restore.retry_backoff_ms": 100,
    "restore.retry_backoff_max_ms": 3000,
    "snapshot.every_records": 1000,
    "snapshot.chunk_bytes_max": 10_000,
    "batch.records_max": 100,
}
"""Everything gives up in seconds: in a run of minutes each timeout is met many times. Small chunks, so that a snapshot
is many of them and takes its time. A zombie is stalled for longer
than group.session_timeout_ms + timeouts.transaction_ms (tests/chaos/schedule.py)."""


def settings_of(seed: int) -> dict[str, object]:
    """What differs from run to run: an odd seed trims nothing, so that the checker sees every increment there ever was,
    an even one trims all the time. Two seeds of four restore by changes, two by replay."""
    return {
        "retention.snapshots_kept": 100 if seed % 2 else 2,
        "restore.mode": "changes" if seed % 4 < 2 else "replay",
    }


class Process:
    """One process `snapreplay run`, from its start to its end. It ends with this one, however that ends."""

    def __init__(self, name: str, argv: list[str], log_path: Path, work_dir: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.expected_down = False  # replaced by a successor of its name: FAILED is right
        self.ended = False
        self.url = ""
        work_dir.mkdir(parents=True)
        self._kept = KeptProcess(work_dir)
        self.pid = self._kept.run(argv, log_path)
        self.http = httpx2.Client(trust_env=False, timeout=ANSWER_S)

    @property
    def alive(self) -> bool:
        """Whether it still runs; a process that ended by itself is a problem, see `Slot.check`."""
        return not self.ended and self._kept.exit_code() is None

    def get(self, path: str) -> Any:
        """None when it does not answer (not up yet, stopped, gone)."""
        try:
            return self.http.get(self._base() + path).raise_for_status().json()
        except NO_ANSWER:
            return None

    def trigger_snapshot(self, reason: str) -> bool:
        """Whether it was accepted: a process without live partitions refuses."""
        try:
            answer = self.http.post(self._base() + "/trigger-snapshot", json={"reason": reason})
        except NO_ANSWER:
            return False
        return bool(answer.is_success)

    def phases(self) -> dict[int, str]:
        """By partition; empty when it does not answer."""
        status = self.get("/restore-status") or {"partitions": []}
        return {each["partition"]: each["phase"] for each in status["partitions"]}

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._kept.end(0.0)
        self.close()

    def stop(self) -> int | None:
        """SIGTERM; the exit code, negative when it had to be killed."""
        code = self._kept.end(STOP_S)
        self.close()
        return code

    def close(self) -> None:
        self.ended = True
        self.http.close()
        self._kept.close()

    def _base(self) -> str:
        if not self.url:
            found = re.findall(r"HTTP API: (http://[^\s/]+)", self.log_path.read_text())
            if not found:
                raise LookupError("it has not said its address yet")
            self.url = found[0]
        return self.url


class Slot:
    """The place of one service process: a name in the group, wires, and the process that is in it now.

    Attributes:
        lives: every process that was started here, for the watch.
    """

    def __init__(self, name: str, wires: Wires, bundle: Bundle, place: Place) -> None:
        self.name = name
        self.bundle = bundle
        self.lives: list[Process] = []
        self._place = place
        self._detours = wires.detours(bundle)

    @property
    def process(self) -> Process:
        return self.lives[-1]

    def start(self, **settings: object) -> Process:
        """Another process of this name; whatever was here is left as it is."""
        number = len(self.lives)
        life = f"{self.name}.{number}"
        log_path = self._place.logs / f"service-{life}.log"
        argv = self._place.command(self.name, life, self._detours, settings)
        process = Process(life, argv, log_path, self._place.work_dir / f"service-{life}")
        self.lives.append(process)
        self._place.timeline.note("process", f"{life} started, process {process.pid}")
        return process

    def kill(self) -> None:
        self.process.kill()
        self._place.timeline.note("process", f"{self.process.name} killed")

    def stop(self) -> None:
        """SIGTERM; another exit code than 0 is a problem, unless it was so early that nothing had begun."""
        process = self.process
        was_up = process.get("/startupz") is not None
        code = process.stop()
        self._place.timeline.note("process", f"{process.name} stopped, exit code {code}")
        if code != 0 and (was_up or code != -signal.SIGTERM):
            self._place.timeline.problem(f"{process.name} ended with {code} after SIGTERM, not 0")

    def check(self) -> None:
        """A process that nobody ended must not have ended."""
        process = self.process
        if not process.ended and not process.alive:
            self._place.timeline.problem(f"{process.name} ended by itself")
            process.close()

    def end_all(self) -> None:
        """Whatever still runs, also what is stopped."""
        for process in self.lives:
            if not process.ended:
                process.kill()


class Place:
    """What all processes of a run have in common."""

    def __init__(
        self,
        bootstrap_servers: str,
        app_id: str,
        settings: Mapping[str, object],
        work_dir: Path,
        logs: Path,
        timeline: Timeline,
    ) -> None:
        self.app_id = app_id
        self.work_dir = work_dir
        self.logs = logs
        self.outcomes = logs / "outcomes"
        self.outcomes.mkdir()
        self.timeline = timeline
        self._servers = bootstrap_servers
        self._settings = {**SETTINGS, **settings}

    def command(
        self, name: str, life: str, detours: Mapping[str, int], settings: Mapping[str, object]
    ) -> list[str]:
        """`env` sets the variables and becomes the service: one process id."""
        given = self._settings | {n.replace("__", "."): value for n, value in settings.items()}
        return [
            "env",
            f"{detour.VARIABLE}={json.dumps(dict(detours))}",
            f"{APP_ID}={self.app_id}",
            f"{OUTCOMES}={self.outcomes / life}.jsonl",
            *(sys.executable, "-m", "snapreplay.api.cli", "run", str(PROGRAM)),
            *("--bootstrap-servers", self._servers, "--http-port", "0"),
            f"--set=instance_id={name}",
            *(f"--set={key}={value}" for key, value in given.items()),
        ]


def until(holds: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
