"""The resources of a process, as the kernel sees them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.chaos.processes import Slot
from tests.chaos.timeline import Timeline

EVERY_S = 2.0


class Sample(NamedTuple):
    """A sample at `at_s` seconds of the run; `age_s` of the process; `live` is the number of its LIVE partitions."""

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


class Sampler:
    """A thread that looks at every process every two seconds, for the length of the block."""

    def __init__(self, slots: dict[Slot, Path], timeline: Timeline) -> None:
        """`slots`: each with the file in which its process keeps the number of its asyncio tasks."""
        self.samples: list[Sample] = []
        self._slots = slots
        self._timeline = timeline
        self._ended = threading.Event()
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
                for slot, tasks in self._slots.items():
                    self._look(slot, tasks)
        except Exception as error:  # noqa: BLE001 - a run without its watch is not good
            self._timeline.problem(f"the sampler ended by itself: {error!r}")

    def _look(self, slot: Slot, tasks: Path) -> None:
        """A process that is killed while it is looked at gives nothing."""
        process, incarnation = slot.process, len(slot.lives) - 1
        live = list(process.phases().values()).count("live")
        try:
            found = (*of_process(process.pid), int(tasks.read_text()))
        except (OSError, ValueError):
            return
        if process.alive:
            age_s = time.monotonic() - process.started_at
            at_s = self._timeline.now_s()
            self.samples.append(Sample(at_s, slot.name, incarnation, age_s, live, *found))


def of_process(pid: int) -> tuple[float, int, int, int]:
    """Resident MiB, threads, sockets, open files (sockets included).

    Raises:
        OSError: it is gone, or dead and not yet buried.
    """
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
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
