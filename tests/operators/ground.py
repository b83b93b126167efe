"""One app on a broker, as an operator has it: its topics, what was written to its input, its process, its commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.support import reference, tampering
from tests.support.deadlines import scaled
from tests.support.waiting import is_true

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
KEYS = 10
DEADLINE_SECONDS = 90.0
POLL_SECONDS = 0.1
SETTINGS = {
    "group.session_timeout_ms": 3000,
    "group.heartbeat_interval_ms": 300,
    "snapshot.every_seconds": 0,
    "restore.retry_backoff_ms": 100,
    "restore.retry_backoff_max_ms": 1000,
}


@dataclass(frozen=True)
class Kept:
    """The sources that the partition has to come back from. `map`: else the state is none; `changes`: else the
    increments hold none; `snapshot`: one was taken, with batches behind it."""

    map: bool = True
    changes: bool = True
    snapshot: bool = True

    def __str__(self) -> str:
        state = "map" if self.map else "no map"
        return f"{state}, changes {'on' if self.changes else 'off'}, {'a' if self.snapshot else 'no'} snapshot"


@dataclass(frozen=True)
class Seen:
    """The state of the app as it is seen. `problem` and `hint` of what stands in its way; both empty when it
    processes."""

    phase: str
    problem: str = ""
    kind: str = ""
    hint: str = ""


class Ground:
    """`partition` 0 is all there is. Numbers of payments rise by one and never come again."""

    def __init__(self, servers: str, app_id: str, kept: Kept, folder: Path) -> None:
        self.servers = servers
        self.app_id = app_id
        self.kept = kept
        self.input, self.output = f"payments-{app_id}", f"balances-{app_id}"
        self.increments, self.snapshots = f"{app_id}-increments", f"{app_id}-snapshots"
        self.next_number = 0
        self.outputs_gone = 0  # payments below it may have lost their outputs: their topic was deleted or trimmed
        self.removed: set[int] = set()  # payments that an operator deleted unprocessed
        self.cut: set[int] = set()  # payments that the brokers themselves have lost, before anybody could say so
        self.told_again = False  # a command has said that outputs are written a second time
        self.state_is_lost = False  # the operator has said so: all is processed from the start
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx2.Client(trust_env=False, timeout=scaled(10))
        self._starts = 0
        self._url = ""

    # ---------------------------------------------------------------- the app

    def prepare(self) -> None:
        for words in ("topics ensure PROGRAM", "init PROGRAM"):
            if words.startswith("topics"):
                self.create(self.input)
                self.create(self.output)
            done = self.command(words)
            assert done.returncode == 0, done.stderr

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        tampering.create(self.servers, topic, partitions, config)

    def feed(self, count: int) -> None:
        """`count` payments more."""
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        records = [(f"k{n % KEYS}", {"number": n}) for n in numbers]
        reference.send(self.servers, self.input, 1, records)

    def start(self) -> None:
        self._starts += 1
        self._url = ""
        arguments = [*self._cli(), "run", str(PROGRAM), *self._options(), "--http-port", "0"]
        with self._log.open("wb") as stderr:
            self._process = subprocess.Popen(
                arguments, cwd=self._folder, env=self._environment(),
                stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._http.close()

    def command(self, words: str) -> subprocess.CompletedProcess[str]:
        """`snapreplay WORDS` as typed; PROGRAM stands for the app."""
        typed = [str(PROGRAM) if word == "PROGRAM" else word for word in shlex.split(words)]
        at_service = typed[0] in {"retry", "trigger-snapshot", "restore-status", "health"}
        options = ["--url", self._url] if at_service else self._options()
        return subprocess.run(
            [*self._cli(), *typed, *options], cwd=self._folder, env=self._environment(),
            capture_output=True, text=True, timeout=scaled(DEADLINE_SECONDS), check=False,
        )  # fmt: skip

    # ---------------------------------------------------------------- looking

    def seen(self) -> Seen:
        """Now."""
        process = self._process
        if process is not None and process.poll() is not None:
            return _refused(self.log)
        status = self._status()
        if status is None:
            return Seen("starting")
        if not status:
            return self._waiting() or Seen("unassigned", self._alert())
        error = status[0].get("error") or {}
        return Seen(
            status[0]["phase"],
            error.get("message", ""),
            error.get("kind", error.get("type", "")),
            error.get("hint", ""),
        )

    def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + scaled(DEADLINE_SECONDS)
        while not is_true(holds):
            if time.monotonic() > deadline:
                assert holds(), f"not {what} in time: {self.seen()}\n{self.log[-4000:]}"
                return
            time.sleep(POLL_SECONDS)

    def position(self) -> int:
        """Next offset of the input; -1 while nobody says."""
        items = self._get("/api/v1/partitions?scope=local") or {"items": []}
        found = [each["inputs"][0]["position"] for each in items["items"] if each["inputs"]]
        return found[0] if found else -1

    def input_exists(self) -> bool:
        return self.input in tampering.topics(self.servers)

    def forget_what_is_cut(self) -> None:
        """Forget what is cut: what the input holds now is the truth."""
        (records,) = reference.committed(self.servers, self.input, 1)
        held = {json.loads(record.value or b"")["number"] for record in records}
        self.cut = set(range(self.next_number)) - held

    def has_processed_all(self) -> bool:
        """A position beyond the end is that of another topic."""
        return self.position() == tampering.end_offset(self.servers, self.input)

    def look_again(self) -> None:
        """Look again after what the hint said was done: without a restart if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            done = self.command("retry --partition 0")
            if done.returncode == 0:
                return
        self.kill()
        self.start()

    def decisions(self) -> str:
        """All that was decided by people or by the service itself, in its words."""
        told: list[Any] = []

        def answered() -> bool:
            told[:] = self._get("/api/v1/partitions?scope=local")["items"]
            return True

        self.until(answered, "told")
        return " ".join(str(each.get("decisions", "")) for each in told)

    def outputs(self) -> list[dict[str, int]]:
        """All that is committed in the output; in order per partition, of which there may be more by now."""
        count = tampering.partition_count(self.servers, self.output)
        found = reference.committed(self.servers, self.output, count)
        return [json.loads(record.value or b"") for partition in found for record in partition]

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _status(self) -> list[Any] | None:
        answer = self._get("/restore-status?scope=local")
        return None if answer is None else answer["partitions"]

    def _waiting(self) -> Seen | None:
        """Tell that it waits for its genesis; with the words for a new app in front."""
        awaited = (self._get("/restore-status?scope=local") or {}).get("waiting_for", "")
        problem, _, hint = awaited.partition(" (")
        return Seen("waiting", problem, "NotBegun", hint) if awaited else None

    def _alert(self) -> str:
        answer = self._get("/restore-status?scope=local") or {}
        return str(answer.get("detail") or answer.get("reason") or "")

    def _get(self, path: str) -> Any:
        if not self._url:
            found = re.findall(r"HTTP API: (http://[^\s/]+)", self.log)
            if not found:
                return None
            self._url = found[0]
        try:
            return self._http.get(self._url + path).json()
        except (httpx2.HTTPError, ValueError):
            return None

    def trigger_snapshot(self) -> None:
        done = self.command("trigger-snapshot --wait")
        assert done.returncode == 0, done.stderr

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.app_id}-{self._starts}.log"

    def _cli(self) -> list[str]:
        return [sys.executable, "-m", "snapreplay.api.cli"]

    def _options(self) -> list[str]:
        given = SETTINGS | ({} if self.kept.changes else {"changelog.enabled": "false"})
        return [
            *("--bootstrap-servers", self.servers),
            *(part for name, value in given.items() for part in ("--set", f"{name}={value}")),
        ]

    def _environment(self) -> dict[str, str]:
        state = "map" if self.kept.map else "book"
        own = {"OPERATED_APP_ID": self.app_id, "OPERATED_STATE": state, "PYTHONPATH": str(ROOT)}
        return os.environ | own


def _refused(log: str) -> Seen:
    """A process that ended by itself said why on its last lines."""
    said = re.findall(r"^(?:snapreplay|error|ERROR)\b.*$", log, re.MULTILINE)
    hints = re.findall(r"^\s*hint: (.*)$", log, re.MULTILINE)
    return Seen("exited", said[-1] if said else log[-400:], "exit", hints[-1] if hints else "")
