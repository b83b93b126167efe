"""Service processes with names of their own, started and ended at will; of a chaos run each behind its own wires."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2

from snapreplay.devbroker.node import KeptProcess
from tests.chaos.timeline import Timeline
from tests.chaos.wires import VARIABLE, Bundle
from tests.checker.app import APP_ID
from tests.checker.outcomes import OUTCOMES
from tests.support.deadlines import scaled
from tests.support.waiting import is_true

PROGRAM = Path(__file__).with_name("program.py")
ANSWER_S = 2.0
NO_ANSWER = (httpx2.HTTPError, LookupError, RuntimeError)
"""RuntimeError: another thread has just ended the process and closed its client."""

STOP_S = 45.0
POLL_S = 0.02

SETTINGS: Mapping[str, object] = {
    "group.session_timeout_ms": 3000,
    "group.heartbeat_interval_ms": 300,
    "group.rebalance_timeout_ms": 8000,
    "http.suspect_after_ms": 2000,
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
is many of them and takes its time. A process that is silent is suspected before its session ends. A zombie is stalled
for longer than group.session_timeout_ms + timeouts.transaction_ms (tests/chaos/schedule.py)."""


def drawn_settings(seed: int) -> dict[str, object]:
    """Return what differs from run to run: an odd seed trims nothing, so that the checker sees every increment
    there ever was, an even one trims all the time. Two seeds of four restore by changes, two by replay. Two seeds of
    three have standbys."""
    return {
        "retention.snapshots_kept": 100 if seed % 2 else 2,
        "restore.mode": "changes" if seed % 4 < 2 else "replay",
        "standby.replicas": min(1, seed % 3),
    }


class Process:
    """One process `snapreplay run`, from its start to its end. It ends with this one, however that ends."""

    def __init__(self, name: str, argv: list[str], log_path: Path, work_dir: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.expected_down = False  # replaced by a successor of its name: FAILED is right
        self.ended = False
        self.started_at = time.monotonic()
        work_dir.mkdir(parents=True)
        self._kept = KeptProcess(work_dir)
        self.pid = self._kept.run(argv, log_path)
        self.http = httpx2.Client(trust_env=False, timeout=ANSWER_S)

    @property
    def alive(self) -> bool:
        """Whether it still runs; a process that ended by itself is a problem, see `Slot.check`."""
        return not self.ended and self._kept.exit_code() is None

    @cached_property
    def url(self) -> str:
        """Raises LookupError: it has not said its address yet."""
        found: list[str] = re.findall(r"HTTP API: (http://[^\s/]+)", self.log_path.read_text())
        return found[0]

    def get(self, path: str) -> Any:
        """None when it does not answer (not up yet, stopped, gone)."""
        try:
            return self.http.get(self.url + path).raise_for_status().json()
        except NO_ANSWER:
            return None

    def trigger_snapshot(self, reason: str) -> bool:
        """Say whether it was accepted: a process without live partitions refuses."""
        try:
            answer = self.http.post(self.url + "/trigger-snapshot?scope=local", json={"reason": reason})
        except NO_ANSWER:
            return False
        return bool(answer.is_success)

    def phases(self) -> dict[int, str]:
        status = self.get("/restore-status?scope=local") or {"partitions": []}
        return {each["partition"]: each["phase"] for each in status["partitions"]}

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._kept.end(0.0)
        self.close()

    def stop(self) -> int | None:
        """SIGTERM; the exit code, negative when it had to be killed."""
        code = self._kept.end(scaled(STOP_S))
        self.close()
        return code

    def close(self) -> None:
        self.ended = True
        self.http.close()
        self._kept.close()


class Slot:
    """The place of one service process: a name in the group, and the process that is in it now.

    Attributes:
        lives: every process that was started here, for the watch.
    """

    def __init__(
        self, name: str, place: Place, bundle: Bundle | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` of its environment; with a bundle, all connections to brokers are these wires."""
        self.name = name
        self.lives: list[Process] = []
        self._place = place
        self._bundle = bundle
        self._variables = variables or {}

    @property
    def bundle(self) -> Bundle:
        assert self._bundle is not None, f"{self.name} has no wires"
        return self._bundle

    @property
    def process(self) -> Process:
        return self.lives[-1]

    def start(self, **settings: object) -> Process:
        """Another process of this name; what was here is left as it is."""
        life = f"{self.name}.{len(self.lives)}"
        variables = dict(self._variables)
        if self._bundle:
            variables[VARIABLE] = json.dumps(self._bundle.detours)
        process = self._place.launch(self.name, life, variables, settings)
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
        """A process must not have ended by itself."""
        process = self.process
        if not process.ended and not process.alive:
            self._place.timeline.problem(f"{process.name} ended by itself")
            process.close()

    def end_all(self) -> None:
        """End what still runs, also what is stopped."""
        for process in self.lives:
            if not process.ended:
                process.kill()


@dataclass(frozen=True)
class Place:
    """The common ground of all processes of a run. `folder` gets their logs, and in `outcomes` their journals."""

    bootstrap_servers: str
    app_id: str
    settings: Mapping[str, object]
    folder: Path
    timeline: Timeline
    program: Path = PROGRAM

    @property
    def outcomes(self) -> Path:
        return self.folder / "outcomes"

    def launch(self, name: str, life: str, variables: Mapping[str, str], settings: Mapping[str, object]) -> Process:
        """`env` sets the variables and becomes the service: one process id."""
        given = {**self.settings, **{n.replace("__", "."): value for n, value in settings.items()}}
        self.outcomes.mkdir(exist_ok=True)
        argv = [
            "env",
            *(f"{variable}={value}" for variable, value in variables.items()),
            f"{APP_ID}={self.app_id}",
            f"{OUTCOMES}={self.outcomes / life}.jsonl",
            *(sys.executable, "-m", "snapreplay.api.cli", "run", str(self.program)),
            *("--bootstrap-servers", self.bootstrap_servers, "--http-port", "0"),
            f"--set=instance_id={name}",
            *(f"--set={key}={value}" for key, value in given.items()),
        ]
        log_path, keeper = self.folder / f"service-{life}.log", self.folder / f"keeper-{life}"
        return Process(life, argv, log_path, keeper)


def until(holds: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; whether it came true in time, which is longer on a busy machine."""
    deadline = time.monotonic() + scaled(seconds)
    while not is_true(holds):
        if time.monotonic() > deadline:
            return bool(holds())
        time.sleep(POLL_S)
    return True
