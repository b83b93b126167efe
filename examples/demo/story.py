"""Process, kill, come back, until every record is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from examples.demo.asking import Asking, Json, all_live
from examples.demo.failed import DemoFailed
from examples.demo.plan import Kill
from examples.demo.record import Comeback, Restart, RunLog
from examples.demo.service_process import ServiceProcess
from examples.demo.show import Show

LIVE_S = 60.0
IDLE_S = 60.0  # the longest that nothing may be committed while records are left
SNAPSHOT_S = 30.0
FIRST_SNAPSHOT_PART = 0.03


class Story:
    """The story of one demo; use it once. What happens is shown by `show` at once and kept in `run_log`."""

    def __init__(self, service: ServiceProcess, asking: Asking, show: Show, run_log: RunLog) -> None:
        self._service = service
        self._asking = asking
        self._show = show
        self._run_log = run_log
        self._positions: dict[int, int] = {}
        self._began = self._live_since = 0.0

    def run(self, kills: list[Kill]) -> None:
        """Run, or raise DemoFailed: something took too long, a partition FAILED, the service ended by itself."""
        self._began = time.monotonic()
        self._service.start()
        self._run_log.first_start = self._back()
        self.until_committed(int(FIRST_SNAPSHOT_PART * self._run_log.loaded))
        self.snapshot("the demo asks for one")
        for number, kill in enumerate(kills, 1):
            restart = self.strike(kill)
            follows = kills[number].moment if number < len(kills) else None
            if follows != "recovering":
                self.come_back(restart)
        self.until_committed(self._run_log.loaded)
        self._run_log.live_s += time.monotonic() - self._live_since
        self._run_log.wall_s = time.monotonic() - self._began

    def digests(self) -> dict[int, str | None]:
        """Return the digest of each partition, as the service reports it now."""
        answer = self._asking.until(self._asking.partitions, lambda _: True, IDLE_S, "digest of each partition")
        return {each["partition"]: each["digest"] for each in answer["items"]}

    def strike(self, kill: Kill) -> Restart:
        """Wait for the moment, SIGKILL, start again at once."""
        if kill.moment == "recovering":
            struck = self._until_recovering(kill)
        else:
            self.until_committed(kill.records)
            if kill.moment == "writing a snapshot":
                self._asking.trigger_snapshot("killed while it is written")
            time.sleep(kill.delay_s)  # a random moment is a time, not a condition
            struck = kill.moment
            if not self._run_log.wall_s:  # the last act, whose flights arrive slowly, is not timed
                self._run_log.live_s += time.monotonic() - self._live_since
        self._service.kill()
        self._service.start(kill.mode)
        restart = Restart(kill, self.committed, struck)
        self._run_log.restarts.append(restart)
        self._show.killed(len(self._run_log.restarts), kill, self.committed, struck)
        return restart

    def come_back(self, restart: Restart) -> None:
        """Wait until every partition is LIVE."""
        restart.comeback = self._back()
        number = len(self._run_log.restarts)
        self._show.came_back(number, restart.kill.mode, restart.comeback)

    def _until_recovering(self, kill: Kill) -> str:
        """Wait in the recovery for as long as the plan says; return what the partitions are doing then."""
        self._first_answer()
        time.sleep(kill.delay_s)  # the plan's moment in the recovery is a time, not a condition
        restore = self._asking.restore()
        phases = restore["summary"]["partitions_by_phase"] if restore else {}
        return "recovering: " + (", ".join(f"{count} {phase}" for phase, count in phases.items()) or "nothing assigned")

    def _back(self) -> Comeback:
        http_s = self._first_answer()
        self._until_restored(lambda restore: bool(restore["partitions"]), "an assignment")
        owned_s = self._service.age_s
        restore = self._until_restored(all_live, "every partition LIVE")
        self._live_since = time.monotonic()
        return Comeback.of(restore, http_s, owned_s, self._service.age_s)

    def _first_answer(self) -> float:
        self._asking.until(self._asking.restore, lambda _: True, LIVE_S, "HTTP after the start")
        return self._service.age_s

    def _until_restored(self, holds: Callable[[Json], bool], what: str) -> Json:
        def ask() -> Json | None:
            restore = self._asking.restore()
            self._show.restoring(restore)
            return restore

        return self._asking.until(ask, holds, LIVE_S, what)

    def until_committed(self, records: int) -> None:
        """Wait until so many input records are committed, over all partitions and restarts.

        Raises:
            DemoFailed: nothing more was committed for a minute.
        """
        while self.committed < records:
            more = partial(self._beyond, self.committed)
            what = f"a commit after record {self.committed:,}"
            self._asking.until(self.look, more, IDLE_S, what)

    def _beyond(self, before: int, _: Json) -> bool:
        return self.committed > before

    def look(self) -> Json | None:
        """Ask `GET /api/v1/partitions`; show and note the answer."""
        answer = self._asking.partitions()
        for each in answer["items"] if answer else ():
            for source in each["inputs"]:
                self._positions[each["partition"]] = source["position"]
            snapshot = each["snapshot"]
            if snapshot and snapshot["state"] == "pointed":
                self._run_log.snapshots.add(snapshot["snapshot_id"])
        if answer:
            self._show.processing(self.committed, self._run_log.records, answer["items"], len(self._run_log.snapshots))
        return answer

    @property
    def committed(self) -> int:
        """Input records, over all partitions and restarts."""
        return sum(self._positions.values())

    def snapshot(self, reason: str) -> None:
        """Trigger a snapshot of all partitions, by `POST /trigger-snapshot`.

        Raises:
            DemoFailed: the operation failed, or took too long.
        """
        began = time.monotonic()
        operation = self._asking.ended(self._asking.trigger_snapshot(reason), SNAPSHOT_S)
        if operation["state"] != "succeeded":
            raise DemoFailed(f"POST /trigger-snapshot: the operation ended as {operation}")
        self._run_log.snapshots.update(part["snapshot_id"] for part in operation["parts"])
        self._show.say(
            f"POST /trigger-snapshot: {len(operation['parts'])} partitions written and pointed to"
            f" in {time.monotonic() - began:.2f} s, beside processing"
        )
