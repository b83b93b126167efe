"""A service as a process of its own, as an operator runs it, so that it can be killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support import reference
from tests.support.deadlines import scaled
from tests.support.stage import Stage, session_ms
from tests.support.waiting import is_true

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
DEADLINE_SECONDS = 40.0
POLL_SECONDS = 0.05
"""Most looks are requests, which take CPU of the client, of the HTTP process and of the service."""

# What Stage.settings says, in the words of the command line; and small batches, so that a kill finds many.
SETTINGS = {
    "group.heartbeat_interval_ms": 200,
    "snapshot.every_seconds": 0,
    "restore.retry_backoff_ms": 50,
    "batch.records_max": 100,
}


class Child:
    def __init__(
        self,
        bootstrap_servers: str,
        kind: str,
        app_id: str,
        log: Path,
        program: Path = PROGRAM,
        options: Sequence[str] = (),
        **settings: object,
    ) -> None:
        """`settings` by dotted name with `__` for the dot: restore__mode="replay"."""
        given: dict[str, object] = {**SETTINGS, "group.session_timeout_ms": session_ms(), "instance_id": "one"}
        given |= {name.replace("__", "."): value for name, value in settings.items()}
        self.log_path = log
        self.started_at = time.monotonic()
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "snapreplay.api.cli", "run", str(program)),
                    *("--bootstrap-servers", bootstrap_servers, "--http-port", "0", *options),
                    *(part for pair in given.items() for part in ("--set", "{}={}".format(*pair))),
                ],
                cwd=ROOT,
                env=os.environ | {"TEST_APP_KIND": kind, "TEST_APP_ID": app_id},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        self.url = ""
        self._http = httpx2.Client(trust_env=False, timeout=scaled(10))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_http(self) -> str:
        """Wait until HTTP answers; return the URL."""
        self.until(lambda: "HTTP API: " in self.log, "HTTP up")
        (self.url,) = re.findall(r"HTTP API: (https?://[^\s/]+)", self.log)
        return self.url

    def raw(self, path: str) -> str:
        return self._http.get(self.url + path).raise_for_status().text

    def get(self, path: str) -> Any:
        return json.loads(self.raw(path))

    def metric(self, name: str) -> list[float]:
        """All values of a metric, over its labels."""
        found = re.findall(rf"^{name}{{[^}}]*}} (\S+)$", self.raw("/metrics"), re.MULTILINE)
        return [float(each) for each in found]

    def post(self, path: str, body: object) -> Any:
        return self._http.post(self.url + path, json=body).raise_for_status().json()

    def partitions(self) -> dict[int, Any]:
        return {p["partition"]: p for p in self.get("/restore-status?scope=local")["partitions"]}

    def live(self) -> set[int]:
        return {n for n, p in self.partitions().items() if p["phase"] == "live"}

    def is_ready(self) -> bool:
        return self._http.get(f"{self.url}/readyz").is_success

    def wait_live(self, count: int = 1) -> float:
        """Wait until that many partitions are LIVE; seconds since the process began."""
        if not self.url:
            self.wait_http()
        self.until(lambda: len(self.live()) >= count, f"{count} partitions live")
        return time.monotonic() - self.started_at

    def processed(self) -> int:
        """Input records committed, over all partitions and processes since genesis (one input)."""
        items = self.get("/api/v1/partitions?scope=local")["items"]
        return sum(each["inputs"][0]["position"] for each in items if each["inputs"])

    def until(self, holds: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait for a condition; fails when the process ends before it comes true."""
        deadline = time.monotonic() + scaled(seconds)
        while not is_true(holds):
            code = self.process.poll()
            assert code is None, f"ended with {code} before {what}: {self.log[-3000:]}"
            if time.monotonic() > deadline:
                assert holds(), f"no {what} in {scaled(seconds):.0f} s: {self.log[-3000:]}"
                return
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._http.close()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        self._http.close()
        return self.process.wait(scaled(DEADLINE_SECONDS))


class Family:
    """Starts children; those that are left are killed at the end."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._servers = bootstrap_servers
        self._folder = folder
        self._children: list[Child] = []

    def start(self, kind: str, app_id: str, **settings: Any) -> Child:
        log = self._folder / f"child-{len(self._children)}.log"
        child = Child(self._servers, kind, app_id, log, **settings)
        self._children.append(child)
        return child

    def end(self) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.kill()


@contextmanager
def family(bootstrap_servers: str, folder: Path) -> Iterator[Family]:
    found = Family(bootstrap_servers, folder)
    try:
        yield found
    finally:
        found.end()


class Load:
    """A thread that writes a few records, pauses, and writes the next, until the block ends."""

    def __init__(self, here: Stage, topic: str | None = None, pause_s: float = 0.1, count: int = 10) -> None:
        self._here = here
        self._topic = topic or here.app.inputs[0].name
        self._pause_s, self._count = pause_s, count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        first = 0
        write = reference.sender(self._here.bootstrap_servers, self._topic, self._here.partitions)
        while not self._ended.wait(self._pause_s):
            write((f"k{n % 20}", {"amount": n}) for n in range(first, first + self._count))
            first += self._count

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
