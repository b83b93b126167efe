"""The speed of this process at restoring, as its restores have shown."""

from __future__ import annotations

import msgspec

from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.control.status import Recovery
from snapreplay.service.core.phase import Phase

LOAD_BYTES_MIN, ADVANCED_RECORDS_MIN = 1_000_000, 10_000
SPENT_SECONDS_MIN = 0.25
"""A smaller restore says little of a larger one, unless it took long."""

_BEFORE_LOADING = (Phase.FENCING, Phase.CLAIMING, Phase.LOCATING)


class MeasuredRates:
    """One per process.

    Attributes:
        known: the last measured ones; constants, where nothing was measured.
    """

    def __init__(self) -> None:
        self.known = Rates()

    def predicted_seconds(self, restore: Recovery) -> float | None:
        """Predict a restore that has ended, by what was known before it; None: nothing is to be learnt from it."""
        if not _is_whole(restore):
            return None
        size_bytes = restore.snapshot.size_bytes if restore.snapshot else 0
        return self.known.speed(restore.mode).seconds(size_bytes, restore.records_advanced)

    def learn(self, restore: Recovery) -> None:
        """Take the rates of a restore that has ended. One from memory, or of several attempts, shows nothing."""
        if not _is_whole(restore):
            return
        spent = restore.seconds_per_phase
        found = {"before_loading_seconds": sum(spent.get(phase, 0.0) for phase in _BEFORE_LOADING)}
        loading, advancing = spent.get(Phase.LOADING, 0.0), spent.get(Phase.ADVANCING, 0.0)
        size_bytes, records = restore.snapshot.size_bytes if restore.snapshot else 0, restore.records_advanced
        if _says_much(size_bytes, LOAD_BYTES_MIN, loading):
            found["load_bytes_per_second"] = size_bytes / loading
        if restore.mode is not None and _says_much(records, ADVANCED_RECORDS_MIN, advancing):
            found[f"{restore.mode}_per_second"] = records / advancing
        measured = tuple(sorted({*self.known.measured, *found}))
        self.known = msgspec.structs.replace(self.known, **found, measured=measured)


def _is_whole(restore: Recovery) -> bool:
    return restore.warm is None and restore.attempts == 1


def _says_much(done: int, least: int, seconds: float) -> bool:
    return done > 0 and seconds > 0 and (done >= least or seconds >= SPENT_SECONDS_MIN)
