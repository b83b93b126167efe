"""What a process has, as the kernel sees it, and how long its restores took."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.service import Service

EVERY_S = 2.0


class Sample(NamedTuple):
    """At `at_s` seconds of the run; `age_s` of the process; `live` is the number of its LIVE partitions."""

    at_s: float
    name: str
    incarnation: int
    age_s: float
    live: int
    rss_mib: float
    threads: int
    sockets: int
    files: int
    tasks: int


class Restore(NamedTuple):
    """One recovery that ended LIVE, `seconds` from its fence."""

    at_s: float
    name: str
    partition: int
    owner_epoch: int
    seconds: float
    mode: str | None
    proven: bool


@dataclass(frozen=True)
class Seen:
    samples: list[Sample]
    restores: list[Restore]
    problems: list[str]


class Sampler:
    """A thread that looks at every process every two seconds, for the length of the block."""

    def __init__(self, services: list[Service]) -> None:
        self.seen = Seen([], [], [])
        self._services = services
        self._known: set[tuple[str, int, int]] = set()
        self._failed: set[str] = set()
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.wait(EVERY_S):
                for service in self._services:
                    if service.up:
                        self._look(service)
        except Exception as error:  # noqa: BLE001 - a run that nobody watches any more is not good
            self.seen.problems.append(f"the sampler ended by itself: {error!r}")

    def _look(self, service: Service) -> None:
        """A process that is killed while it is looked at gives nothing."""
        incarnation = service.incarnation
        partitions = service.partitions()
        for each in partitions:
            self._note(service.name, each)
        live = sum(each["phase"] == "live" for each in partitions)
        try:
            tasks = int(service.tasks_path.read_text())
            found = of_process(service.pid)
        except (OSError, ValueError):
            return
        if service.up and service.incarnation == incarnation:
            now = time.monotonic()
            age_s = now - service.started_at
            sample = Sample(
                now - self._began, service.name, incarnation, age_s, live, *found, tasks
            )
            self.seen.samples.append(sample)

    def _note(self, name: str, each: Any) -> None:
        if each["phase"] == "failed" and (what := f"{name}: {each['error']}") not in self._failed:
            self._failed.add(what)
            self.seen.problems.append(f"partition {each['partition']} FAILED in {what}")
        if each["phase"] != "live" or each["owner_epoch"] is None or each["finished_at"] is None:
            return
        key = (name, each["partition"], each["owner_epoch"])
        if key in self._known:
            return
        self._known.add(key)
        proof = each["proof"]
        restore = Restore(
            time.monotonic() - self._began,
            *key,
            sum(each["seconds_per_phase"].values()),
            each["mode"],
            proof is not None and proof["equal"],
        )
        self.seen.restores.append(restore)
        if not restore.proven:
            self.seen.problems.append(f"restore without an equal digest: {restore}")


def of_process(pid: int) -> tuple[float, int, int, int]:
    """Resident MiB, threads, sockets, open files (sockets included).

    Raises:
        OSError: it is gone, or dead and not yet buried.
    """
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {pid} is dead")
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # closed since the folder was listed
    sockets = sum(link.startswith("socket:") for link in links)
    return int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), sockets, len(links)
