"""Looks at every process several times a second and writes down what its partitions do."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from tests.chaos.processes import Process, Slot
from tests.chaos.timeline import Timeline

LOOK_S = 0.1
TOLD = {
    "takeovers": re.compile(r"seems to be dead: .*; \d+ partitions? taken over: "),
    "false alarms": re.compile(" is still a member of the group: "),
}
"""What is counted → what a process logs then."""


class Restore(NamedTuple):
    """A recovery that ended LIVE. `seconds` from its fence to LIVE, all attempts together."""

    process: str
    partition: int
    owner_epoch: int
    at_s: float
    seconds: float
    attempts: int
    mode: str | None
    from_snapshot: bool
    fallback: bool
    proof_equal: bool | None
    copied: bool = False


def restores_in_short(restores: Sequence[Restore]) -> str:
    if not restores:
        return "no restore was seen"
    seconds = [one.seconds for one in restores]
    copied = sum(one.copied for one in restores)
    warm = f", {copied} of them from a warm copy" if copied else ""
    return f"{len(seconds)} restores{warm}, {median(seconds):.2f} s (median), {max(seconds):.2f} s (longest)"


class Watch:
    """A thread per slot, from `with` to its end: a stopped process that keeps one waiting hides no other."""

    def __init__(self, slots: list[Slot], timeline: Timeline, every_s: float = LOOK_S) -> None:
        self._every_s = every_s
        self._slots = slots
        self._timeline = timeline
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(slot,)) for slot in slots]
        self._phases: dict[tuple[str, int], str] = {}
        self._known: set[tuple[str, int, int]] = set()
        self._read_to: dict[str, int] = {}
        self.restores: list[Restore] = []
        self.told: Counter[str] = Counter(dict.fromkeys(TOLD, 0))
        """How often processes have taken over from one that seemed to be dead, and how often that was wrong."""

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for slot in self._slots:
            for process in slot.lives:
                self.listen(process)

    def listen(self, process: Process) -> None:
        """Note what a process has logged of others since."""
        with process.log_path.open("rb") as file:
            file.seek(self._read_to.get(process.name, 0))
            whole = file.read().rpartition(b"\n")[0]
        self._read_to[process.name] = self._read_to.get(process.name, 0) + len(whole)
        for line in whole.decode().splitlines():
            for what, said in TOLD.items():
                if said.search(line):
                    self.told[what] += 1
                    self._timeline.note("process", f"{process.name}: {line}")

    def _look(self, slot: Slot) -> None:
        while not self._ended.wait(self._every_s):
            for process in slot.lives[-2:]:  # two while one is replaced by the other
                if not process.ended:
                    self.read(process)
                    self.listen(process)

    def read(self, process: Process) -> None:
        status = process.get("/restore-status?scope=local")
        if status is None:
            return
        for each in status["partitions"]:
            self._phase(process, each)
            if each["phase"] == "live" and each["finished_at"] is not None:
                self._restored(process, each)

    def _phase(self, process: Process, status: Any) -> None:
        key, phase = (process.name, status["partition"]), status["phase"]
        if self._phases.get(key) == phase:
            return
        self._phases[key] = phase
        error = status["error"]
        why = f": {error['kind']}: {error['message']}" if error and phase != "live" else ""
        self._timeline.note("phase", f"partition {key[1]} {phase} in {process.name}{why}")
        if phase == "failed" and not process.expected_down:
            self._timeline.problem(f"partition {key[1]} FAILED in {process.name}{why}")

    def _restored(self, process: Process, status: Any) -> None:
        key = (process.name, status["partition"], status["owner_epoch"])
        if key in self._known:
            return
        self._known.add(key)
        proof = status["proof"]
        restore = Restore(
            *key,
            at_s=self._timeline.now_s(),
            seconds=sum(status["seconds_per_phase"].values()),
            attempts=status["attempts"],
            mode=status["mode"],
            from_snapshot=status["snapshot"] is not None,
            fallback=status["fallback_reason"] is not None,
            proof_equal=proof["equal"] if proof else None,
            copied=status["warm"] == "copied",
        )
        self.restores.append(restore)
        if restore.proof_equal is False:
            self._timeline.problem(f"restore without an equal digest: {restore}")
