"""The recovery-time objective of a LIVE partition: what the policy judges it by, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from snapreplay.counted import counted
from snapreplay.service.control.restore_plan import RestoreObjective, RestorePlan
from snapreplay.service.core.adoption import records_between
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.snapshot_policy import Objective
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.contract import Store

log = logging.getLogger("snapreplay.partition")

TELL_SECONDS = 0.5
WRITING_FACTOR = 4.0
"""The time of writing by that of loading, where none was written yet: it shares the loop with the processing."""


class ObjectiveWatch:
    """Lives and dies with one LIVE incarnation of a partition that has an objective."""

    def __init__(
        self, context: Context, reporter: Reporter, store: Store, positions: Mapping[str, int], *, by_replay: bool
    ) -> None:
        """Take `positions`, up to which the inputs are committed."""
        self._context = context
        self._reporter = reporter
        self._store = store
        self._positions = positions
        self._records = self._offsets = 0  # since the newest snapshot; the offsets are those that the records took
        self._offsets_per_record = 1.0
        self._mode = "replay" if by_replay else context.settings.restore.mode
        self._newest = (-1, 0)  # batch and bytes of the newest snapshot that is pointed to, as far as known
        self._write_seconds: float | None = None
        self._shown: RestoreObjective | None = None
        self._told_at = 0.0
        self._said = Repeats()

    def committed(self, increment: Increment) -> None:
        """Count what was committed."""
        self._records += increment.handled_count
        self._offsets += records_between(self._positions, increment.positions)
        self._positions = increment.positions
        if self._records:
            self._offsets_per_record = max(1.0, self._offsets / self._records)

    def marked(self) -> None:
        """Count anew: there is a newer snapshot."""
        self._records = self._offsets = 0

    def now(self, plan: RestorePlan | None, *, from_genesis: bool) -> Objective:
        """Return what the policy judges. `from_genesis`: no snapshot is pointed to."""
        seconds = self._context.settings.restore.objective_seconds
        self._learn(plan)
        speed, state_bytes = self._context.rates.known.speed(self._mode), self._store.size_bytes
        batch, size_bytes = self._newest
        if from_genesis:
            size_bytes = 0
        elif batch < 0:
            size_bytes = state_bytes  # not compressed: an upper bound
        writing = self._write_seconds
        if writing is None:
            writing = WRITING_FACTOR * state_bytes / speed.load_bytes_per_second
        return Objective(seconds, speed, size_bytes, writing, self._offsets_per_record)

    def tell(self, objective: Objective, records: int) -> None:
        """Show what a restore would take now, with so many records behind the newest snapshot that is pointed to."""
        now, before = asyncio.get_running_loop().time(), self._shown
        predicted = objective.predicted(records)
        is_met = predicted <= objective.seconds
        if before is not None and before.is_met == is_met and now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        reason = "" if is_met else _missed(objective, records)
        fresh = objective.predicted(0)
        self._shown = RestoreObjective(objective.seconds, predicted, fresh, is_met, reason)
        self._reporter.note(objective=self._shown)
        if is_met and before is not None and not before.is_met:
            log.info("partition %d: restore.objective_seconds is met again", self._context.partition)
        elif not is_met and (before is None or before.is_met):
            self._warn(reason, now, cause=objective.is_reachable)

    def _learn(self, plan: RestorePlan | None) -> None:
        restore, pointed = self._reporter.recovery, self._reporter.facts.pointed
        found = (restore.snapshot if restore else None, plan.first if plan else None, pointed)
        self._newest = max([self._newest, *((each.batch, each.size_bytes) for each in found if each is not None)])
        if pointed is not None and pointed.finished_at is not None and pointed.reason != "adopted":
            self._write_seconds = (pointed.finished_at - pointed.started_at).total_seconds()

    def close(self) -> None:
        """Withdraw it: another owner may have its own."""
        self._reporter.note(objective=None)

    def _warn(self, reason: str, now: float, *, cause: bool) -> None:
        said = self._said.met(cause, now)
        if said is not None:
            number, more = self._context.partition, said.more(now)
            log.warning("partition %d: restore.objective_seconds is not met: %s%s", number, reason, more)


def _missed(objective: Objective, records: int) -> str:
    predicted, seconds = objective.predicted(records), objective.seconds
    if objective.is_reachable:
        return (
            f"a restore would take {predicted:.2f} s, not {seconds:g} s: {counted(records, 'record')} came since the"
            f" newest snapshot, and one takes {objective.write_seconds:.2f} s to write"
        )
    return (
        f"a restore even from a new snapshot would take {objective.predicted(0):.2f} s, not {seconds:g} s:"
        f" {objective.size_bytes:,} bytes are to be loaded. Snapshots keep it within {objective.limit_seconds:.2f} s"
    )
