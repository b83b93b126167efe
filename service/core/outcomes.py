"""The outcomes that end an ownership, and the answers to what is asked before the next one begins: the input of
`ownership.step`. `next_steps.py` has its output.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.bisection import NO_EVENTS, Events
from snapreplay.snapshots.format.records import Claim, Increment


@dataclass(frozen=True)
class Ended:
    """An ownership ended: `error` is None when it was stopped. `owner_epoch` and `batch` are the last ones known;
    `failed` is the batch that was not answered OK, `failed_events` what was due in it. `at` is the loop's time, in
    seconds."""

    error: BaseException | None
    at: float = 0.0
    owner_epoch: int | None = None
    batch: int | None = None
    failed: Increment | None = None
    failed_events: Events = NO_EVENTS


@dataclass(frozen=True)
class LossAnswered:
    """The reason why nothing can be committed to the chain any more; None: nothing has changed, or nobody answers."""

    loss: SnapreplayError | None


@dataclass(frozen=True)
class OwnerAnswered:
    """The newest claim after ours; None: nobody has claimed. `at` is the loop's time in seconds."""

    newer: Claim | None
    at: float = 0.0


@dataclass(frozen=True)
class OwnerUnknown:
    """The log could not be asked."""

    error: SnapreplayError


@dataclass(frozen=True)
class Done:
    """The message that what was asked for is done, or its wait is over."""


@dataclass(frozen=True)
class Interrupted:
    """The wait was ended by a stop or a refusal."""


@dataclass(frozen=True)
class Retried:
    """An operator asked for it. `refused`: why the cluster, as it is now, is still refused."""

    refused: SnapreplayError | None


Outcome = Ended | LossAnswered | OwnerAnswered | OwnerUnknown | Done | Interrupted | Retried
