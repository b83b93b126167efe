"""A second process keeps warm copies; the owner is killed while flights arrive, and the copies take over.

Then the first process comes back, has warm copies in its turn, and is handed everything when the second one is stopped.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from examples.demo.asking import Asking, Json, all_live
from examples.demo.feeder import Feeder
from examples.demo.names import PARTITIONS
from examples.demo.record import RunLog, Takeover
from examples.demo.service_process import ServiceProcess
from examples.demo.show import Show
from examples.demo.story import Story

WARM_S = 60.0
TAKEOVER_S = 60.0


@dataclass(frozen=True)
class StandbyAct:
    """Use once, while `service` runs. What happens is shown by `show` and kept in `run_log`."""

    story: Story
    service: ServiceProcess
    standby: ServiceProcess
    show: Show
    run_log: RunLog

    def play(self, feeder: Feeder) -> None:
        """Play from the second process's start to its end, in which all records of the feeder are committed.

        Raises:
            DemoFailed: a process ended by itself, or something took too long.
        """
        feeder.start()
        self.standby.start()
        with closing(Asking(self.service)) as first, closing(Asking(self.standby)) as second:
            self._until_copied(first, second)
            self.show.say("a second process owns half of the partitions, and each has warm copies of the other's")
            moved = owned(first.until(first.restore, lambda _: True, WARM_S, "answer of the first process"))
            self.service.kill()
            killed_at = time.monotonic()
            restore = second.until(second.restore, all_live, TAKEOVER_S, "takeover by the standby")
            self.run_log.takeover = takeover(restore, moved, time.monotonic() - killed_at)
            self.show.taken_over(self.run_log.takeover)
            feeder.finish()
            self.service.start()
            self._until_copied(second, first)
            self.show.say("the first process is back, with its half and the warm copies; the second one is stopped")
            self.standby.stop()
            first.until(first.restore, all_live, TAKEOVER_S, "handover to the first process")
        self.story.until_committed(self.run_log.loaded + self.run_log.arrived_beside)

    @staticmethod
    def _until_copied(one: Asking, other: Asking) -> None:
        def holds(restore: Json) -> bool:
            before = one.restore()
            return before is not None and is_copied(before, restore)

        other.until(other.restore, holds, WARM_S, "warm copies of all partitions")


def owned(restore: Json) -> set[int]:
    """Return the partitions that are live in this process."""
    return {each["partition"] for each in restore["partitions"] if each["phase"] == "live"}


def is_copied(one: Json, other: Json) -> bool:
    """Say whether each of two processes owns a half of the partitions and has a warm copy of the other half. Before
    that the group is still about to move some, and a death then is found out by the session timeout only."""
    warm = [{each["partition"] for each in restore["standbys"] if each["state"] == "warm"} for restore in (one, other)]
    first, second = owned(one), owned(other)
    is_settled = len(first) == len(second) == PARTITIONS // 2 and len(first | second) == PARTITIONS
    return is_settled and second <= warm[0] and first <= warm[1]


def takeover(restore: Json, moved: set[int], seconds: float) -> Takeover:
    """Judge by the restore status of the process that has taken over: a proof compares the copy's digest with the one
    that the dead owner recorded last."""
    proofs = {each["partition"]: each["proof"] for each in restore["partitions"]}
    proven = {number for number in moved if proofs.get(number) and proofs[number]["equal"]}
    return Takeover(seconds, frozenset(moved), frozenset(proven))
