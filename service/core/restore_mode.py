"""The two ways from a snapshot to the last increment. Pure."""

from __future__ import annotations

from enum import StrEnum


class RestoreMode(StrEnum):
    """The way the state is brought forward from the snapshot to the last increment."""

    CHANGES = "changes"
    REPLAY = "replay"

    @property
    def other(self) -> RestoreMode:
        return RestoreMode.REPLAY if self is RestoreMode.CHANGES else RestoreMode.CHANGES
