"""The steps that follow when an ownership ends: the output of `ownership.step`, performed by the partition's
runner."""

from __future__ import annotations

from dataclasses import dataclass

from snapreplay.errors import ReleaseError, SnapreplayError
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.snapshots.format.records import Claim


@dataclass(frozen=True)
class Own:
    """Fence, recover and process, unless stopped or refused."""


@dataclass(frozen=True)
class AskForLoss:
    """Ask whether the increments topic is still the one that was written to."""


@dataclass(frozen=True)
class AskForOwner:
    """Ask the log for a claim after ours."""


@dataclass(frozen=True)
class Lose:
    """The increments topic was deleted or replaced: the state in memory is the only copy. The next recovery waits for
    the topic and writes the state."""

    error: SnapreplayError


@dataclass(frozen=True)
class Pause:
    """Back off and show why."""

    seconds: float
    error: SnapreplayError


@dataclass(frozen=True)
class StandBack:
    """Wait until the group gives us the partition. It was taken from us `times` times in a row."""

    newer: Claim
    error: ReleaseError
    times: int


@dataclass(frozen=True)
class StandAside:
    """Wait until an assignment gives us the partition. Meanwhile the process leaves the group.

    Attributes:
        is_new: nothing was refused yet; an assignment from before does not count.
        has_claimed: the log shows a claim of the other process.
    """

    error: DuplicateInstance
    is_new: bool
    has_claimed: bool


@dataclass(frozen=True)
class Fail:
    """Wait until an operator acts.

    Attributes:
        is_told: the hint was already logged, once for all partitions.
        is_unproven: the log does not hold the state in memory.
        is_defect: nobody knows what the state in memory is.
        may_be_written: another process may still write what this one could not go on from.
    """

    error: BaseException
    is_told: bool
    is_unproven: bool
    is_defect: bool
    may_be_written: bool


Next = Own | AskForLoss | AskForOwner | Lose | Pause | StandBack | StandAside | Fail
