"""The phase of one partition, and its allowed transitions. Pure.

ASSIGNED → FENCING → CLAIMING → LOCATING → LOADING → ADVANCING → LIVE. An interrupted recovery starts again from
FENCING; a mode that is unavailable leads back to LOADING, which is left out when the state is in memory.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Lower-case values: they are what HTTP, metrics and logs show."""

    ASSIGNED = "assigned"  # ours by the group, nothing done yet
    FENCING = "fencing"  # starting the transactional producer: older owners can commit nothing more
    CLAIMING = "claiming"  # committing the claim record: its offset is the owner epoch
    LOCATING = "locating"  # reading the claim back, then finding the last increment before it
    LOADING = "loading"  # reading the full snapshot the increment points to
    ADVANCING = "advancing"  # bringing it forward by changes or by replay
    LIVE = "live"  # processing input
    FENCED = "fenced"  # a newer owner exists
    FAILED = "failed"  # an operator is needed; the status carries the hint
    CLOSED = "closed"  # moved away, or shut down


RECOVERING = (Phase.FENCING, Phase.CLAIMING, Phase.LOCATING, Phase.LOADING, Phase.ADVANCING)
ON_THE_WAY = (Phase.ASSIGNED, *RECOVERING)
"""The phases of a partition that is to be LIVE, and is not yet."""

_ENDS = frozenset({Phase.FENCED, Phase.FAILED, Phase.CLOSED})

ALLOWED: dict[Phase, frozenset[Phase]] = {
    Phase.ASSIGNED: _ENDS | {Phase.FENCING},
    **{
        phase: _ENDS | {Phase.FENCING, after}
        for phase, after in zip(RECOVERING, (*RECOVERING[1:], Phase.LIVE), strict=True)
    },
    Phase.LOCATING: _ENDS | {Phase.FENCING, Phase.LOADING, Phase.ADVANCING},
    Phase.ADVANCING: _ENDS | {Phase.FENCING, Phase.LOADING, Phase.LIVE},
    Phase.LIVE: _ENDS | {Phase.FENCING},
    Phase.FENCED: frozenset({Phase.FENCING, Phase.FAILED, Phase.CLOSED}),
    # FENCED: another process has the same instance id, or a newer owner is there.
    Phase.FAILED: frozenset({Phase.FENCING, Phase.FENCED, Phase.CLOSED}),
    Phase.CLOSED: frozenset(),
}


def may_follow(before: Phase, after: Phase) -> bool:
    """Say whether a partition in `before` may go to `after`. Staying in a phase is no transition."""
    return after in ALLOWED[before]


class CopyState(StrEnum):
    """The step that a warm copy of another process's partition is at."""

    LOADING = "loading"
    WARM = "warm"
    AHEAD = "ahead"
    """The log ends before it."""


class RestoreMode(StrEnum):
    """The way the state is brought forward from the snapshot to the last increment."""

    CHANGES = "changes"
    REPLAY = "replay"

    @property
    def other(self) -> RestoreMode:
        return RestoreMode.REPLAY if self is RestoreMode.CHANGES else RestoreMode.CHANGES
