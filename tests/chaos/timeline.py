"""The timeline of a run: one list, written by all threads of a run."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tests.chaos.schedule import Fault

Source = Literal["run", "fault", "phase", "process"]


@dataclass(frozen=True)
class Entry:
    at_s: float
    source: Source
    text: str


@dataclass
class Injected:
    """A fault that was begun, and what it hit. `error`: why it could not be carried out or healed."""

    fault: Fault
    begun_s: float
    hit: list[str]
    healed_s: float | None = None
    error: str = ""


class Timeline:
    """Thread-safe. Also prints each entry, so that a run can be watched."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._zero = time.monotonic()
        self.entries: list[Entry] = []
        self.injected: list[Injected] = []
        self.problems: list[str] = []
        """What must not happen under any fault; each one fails the run."""

    def start(self) -> None:
        """Seconds count from here; those of what came before are negative."""
        with self._lock:
            passed = self.now_s()
            self._zero += passed
            self.entries[:] = [replace(one, at_s=round(one.at_s - passed, 3)) for one in self.entries]

    def now_s(self) -> float:
        return time.monotonic() - self._zero

    def note(self, source: Source, text: str) -> None:
        with self._lock:
            entry = Entry(round(self.now_s(), 3), source, text)
            self.entries.append(entry)
        self._say(f"{entry.at_s:8.2f}  {source:<8}{text}")

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(f"at {self.now_s():.2f} s: {text}")
        self.note("run", f"PROBLEM: {text}")

    def begin(self, fault: Fault) -> Injected:
        injected = Injected(fault, round(self.now_s(), 3), [])
        with self._lock:
            self.injected.append(injected)
        return injected

    def hit(self, injected: Injected, text: str) -> None:
        injected.hit.append(text)
        self.note("fault", f"#{injected.fault.number} {injected.fault.kind}: {text}")

    def healed(self, injected: Injected) -> None:
        injected.healed_s = round(self.now_s(), 3)
        self.note("fault", f"#{injected.fault.number} {injected.fault.kind}: healed")

    def failed(self, injected: Injected, error: str) -> None:
        injected.error = error
        self.note("fault", f"#{injected.fault.number} {injected.fault.kind}: NOT CARRIED OUT: {error}")
