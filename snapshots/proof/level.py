"""The strength of an audit. Pure."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Each level includes the one before it."""

    INTEGRITY = "integrity"  # what was written is there, whole, in one chain
    CHANGES = "changes"  # every batch's digest and every snapshot's, from the recorded changes
    REPLAY = "replay"  # what the app's handlers make of the input is what was recorded

    def includes(self, other: Level) -> bool:
        """Say whether a proof at this level is one at `other`, too."""
        levels = list(Level)
        return levels.index(self) >= levels.index(other)
