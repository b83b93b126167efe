"""The speed of this process at restoring, as its restores have shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum

import msgspec

from snapreplay.service.clock import wall_time
from snapreplay.service.control.restore_plan import Forecast, Rates
from snapreplay.service.control.status import RecoveryStatus
from snapreplay.service.core.phase import Phase

LOAD_BYTES_MIN, ADVANCED_RECORDS_MIN = 1_000_000, 10_000
SPENT_SECONDS_MIN = 0.25
"""A smaller restore says little of a larger one. A tenth is enough if it took long."""

FORECAST_SECONDS_MAX = 365 * 86_400.0
"""A manifest that is not proven yet may name any size, and there is a last date that can be written."""

_BEFORE_LOADING = (Phase.FENCING, Phase.CLAIMING, Phase.LOCATING)


class Work(StrEnum):
    """The work of a restore: what grows with the snapshot, what grows with the records, and neither."""

    LOADING = "loading"
    ADVANCING = "advancing"
    FINISHING = "finishing"


class Worked:
    """The seconds of a restore that were work. Its phases have waiting, too: for a place, for a topic."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Work, 0.0)

    @contextmanager
    def at(self, work: Work) -> Iterator[None]:
        """Add the time of what is done meanwhile."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            yield
        finally:
            self.seconds[work] += clock() - began


class MeasuredRates:
    """One per process.

    Attributes:
        known: the last measured ones; constants, where nothing was measured.
        owning_seconds: fencing, claiming and locating of the last measured one.
    """

    def __init__(self) -> None:
        self.known = Rates()
        self.owning_seconds = self.known.before_loading_seconds

    def predicted_seconds(self, restore: RecoveryStatus) -> float | None:
        """Predict a restore that has ended, by what was known before it; None if it teaches nothing."""
        if not _is_whole(restore):
            return None
        size_bytes = restore.snapshot.size_bytes if restore.snapshot else 0
        return self.known.speed(restore.mode).seconds(size_bytes, restore.records_advanced)

    def forecast(self, mode: str, size_bytes: int, records: int) -> Forecast:
        """Predict a restore whose loading begins now, a year at most."""
        seconds = max(0.0, min(self.known.speed(mode).seconds(size_bytes, records), FORECAST_SECONDS_MAX))
        return Forecast(seconds, wall_time() + timedelta(seconds=seconds - self.owning_seconds))

    def learn(self, restore: RecoveryStatus, worked: Worked) -> None:
        """Take the rates of a restore that has ended. One from memory, or of several attempts, shows nothing."""
        if not _is_whole(restore):
            return
        self.owning_seconds = sum(restore.seconds_per_phase.get(phase, 0.0) for phase in _BEFORE_LOADING)
        loading, advancing, finishing = (worked.seconds[work] for work in Work)
        found = {"before_loading_seconds": self.owning_seconds + finishing}
        size_bytes, records = restore.snapshot.size_bytes if restore.snapshot else 0, restore.records_advanced
        if _says_much(size_bytes, LOAD_BYTES_MIN, loading):
            found["load_bytes_per_second"] = size_bytes / loading
        if restore.mode is not None and _says_much(records, ADVANCED_RECORDS_MIN, advancing):
            found[f"{restore.mode}_per_second"] = records / advancing
        measured = tuple(sorted({*self.known.measured, *found}))
        self.known = msgspec.structs.replace(self.known, **found, measured=measured)


def _is_whole(restore: RecoveryStatus) -> bool:
    return restore.warm is None and restore.attempts == 1


def _says_much(done: int, least: int, seconds: float) -> bool:
    enough = least / 10 if seconds >= SPENT_SECONDS_MIN else least
    return seconds > 0 and done >= enough
