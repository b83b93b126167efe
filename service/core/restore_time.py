"""The time of a restore. The plan shows it, snapshots are taken by it, and drills and restores are compared with it.
Pure."""

from __future__ import annotations

from typing import NamedTuple


class Speed(NamedTuple):
    """The speed of restores by one mode."""

    before_loading_seconds: float
    load_bytes_per_second: float
    advanced_per_second: float

    def seconds(self, size_bytes: int, records: float) -> float:
        """Predict the seconds from fencing to live: of a snapshot of this size, and so many records behind it."""
        loading, advancing = size_bytes / self.load_bytes_per_second, records / self.advanced_per_second
        return self.before_loading_seconds + loading + advancing
