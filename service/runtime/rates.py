"""The speed of this process at restoring, as its restores have shown."""

from __future__ import annotations

import msgspec

from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.control.status import Recovery
from snapreplay.service.core.phase import Phase

LOAD_BYTES_MIN, ADVANCED_RECORDS_MIN = 1_000_000, 10_000
"""A smaller restore says little of a larger one."""

_BEFORE_LOADING = (Phase.FENCING, Phase.CLAIMING, Phase.LOCATING)


class MeasuredRates:
    """One per process.

    Attributes:
        known: the last measured ones; constants, where nothing was measured.
    """

    def __init__(self) -> None:
        self.known = Rates()

    def learn(self, restore: Recovery) -> None:
        """Take the rates of a restore that has ended. One from memory, or of several attempts, shows nothing."""
        if restore.warm is not None or restore.attempts != 1:
            return
        spent = restore.seconds_per_phase
        found = {"before_loading_seconds": sum(spent.get(phase, 0.0) for phase in _BEFORE_LOADING)}
        loading, advancing = spent.get(Phase.LOADING, 0.0), spent.get(Phase.ADVANCING, 0.0)
        if restore.snapshot is not None and restore.snapshot.size_bytes >= LOAD_BYTES_MIN and loading > 0:
            found["load_bytes_per_second"] = restore.snapshot.size_bytes / loading
        if restore.mode is not None and restore.records_advanced >= ADVANCED_RECORDS_MIN and advancing > 0:
            found[f"{restore.mode}_per_second"] = restore.records_advanced / advancing
        measured = tuple(sorted({*self.known.measured, *found}))
        self.known = msgspec.structs.replace(self.known, **found, measured=measured)
