"""The logs that are read: both logs of a partition, between offsets that are fixed before. Pure but for what `Logs`
does."""

from __future__ import annotations

from typing import Protocol

import msgspec

from snapreplay.snapshots.format.seal import Seals
from snapreplay.snapshots.proof.records import Slices


class Moment(msgspec.Struct, frozen=True):
    """A partition's two logs at one moment: half-open ranges of offsets, `start <= end`."""

    partition: int
    log_start: int
    log_end: int
    snapshots_start: int
    snapshots_end: int


class Logs(Protocol):
    """The two logs of one partition."""

    @property
    def seals(self) -> Seals | None:
        """The keys of their records; None: seals are not looked at."""

    def increments(self, start_offset: int, end_offset: int) -> Slices:
        """Read committed records only."""

    def snapshots(self, start_offset: int, end_offset: int) -> Slices:
        """Read all records: they are written outside any transaction."""
