"""The progress of a recovery: the reports that it makes, and a record of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from snapreplay.service.clock import wall_time
from snapreplay.service.control.status import Progress, RecoveryStatus, SnapshotStatus
from snapreplay.service.core.phase import RECOVERING, Phase
from snapreplay.service.core.retained import Warm


class RestoreProgress:
    """Receives what a recovery reports while it runs. A method that is not overridden ignores its report."""

    def started(self) -> None:
        """Begin a recovery. Earlier reports are obsolete."""

    def phase(self, phase: Phase) -> None:
        """Enter a phase, or stay in it."""

    def progress(self, unit: str, from_: int, current: int, target: int) -> None:
        """Report how far the phase is, in `unit`: bytes or records."""

    def waiting_for(self, what: str) -> None:
        """Report the cause of a wait."""

    def restore(self, **facts: Any) -> None:
        """Report fields of `control.status.RecoveryStatus`."""

    def warm(self, outcome: Warm, entries: int) -> None:
        """Report that the state was still in memory."""

    def snapshot(self, status: SnapshotStatus) -> None:
        """Report a full snapshot that is being written."""


SILENT = RestoreProgress()


class RestoreRecord(RestoreProgress):
    """The record of the running or last recovery; None before the first one."""

    def __init__(self) -> None:
        self.recovery: RecoveryStatus | None = None
        self._phase = Phase.ASSIGNED
        self._phase_since = self._progress_since = 0.0

    def started(self) -> None:
        self._phase_since = asyncio.get_running_loop().time()
        self.recovery = RecoveryStatus(attempts=1, started_at=wall_time())

    def phase(self, phase: Phase) -> None:
        """Enter a phase. The time spent in the last one goes into the recovery's split."""
        before, self._phase = self._phase, phase
        if phase is before:
            return
        now, recovery = asyncio.get_running_loop().time(), self.recovery
        if recovery is not None and before in RECOVERING:
            spent = recovery.seconds_per_phase.get(before.value, 0.0) + now - self._phase_since
            seconds = {**recovery.seconds_per_phase, before.value: spent}
            self.recovery = msgspec.structs.replace(recovery, seconds_per_phase=seconds, progress=None, waiting_for="")
        self._phase_since = now

    def progress(self, unit: str, from_: int, current: int, target: int) -> None:
        """Record the progress; rate and time left count from the beginning of this phase's progress."""
        now = asyncio.get_running_loop().time()
        if current <= from_:
            self._progress_since = now
        elapsed = now - self._progress_since
        rate = (current - from_) / elapsed if elapsed > 0 and current > from_ else None
        eta = (target - current) / rate if rate else None
        advanced = {"records_advanced": current - from_} if unit == "records" else {}
        self.restore(progress=Progress(unit, from_, current, target, rate, eta), waiting_for="", **advanced)

    def waiting_for(self, what: str) -> None:
        self.restore(waiting_for=what)

    def restore(self, **facts: Any) -> None:
        if self.recovery is not None:
            self.recovery = msgspec.structs.replace(self.recovery, **facts)

    def warm(self, outcome: Warm, entries: int) -> None:
        """Record that the state was still in memory. The first of several attempts tells of the batch in doubt."""
        if self.recovery is not None:
            self.restore(warm=self.recovery.warm or outcome.value, entries=entries)
