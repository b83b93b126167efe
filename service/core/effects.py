"""The effects that a recovery asks for, one thing at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.core import search
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.warm_copy import WarmCopy
from snapreplay.snapshots.format.records import Claim, Increment
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import Start


@dataclass(frozen=True)
class Fence:
    """Start a new transactional producer (discarding any old one)."""


@dataclass(frozen=True)
class WriteClaim:
    """Commit one claim record with a new random id."""


@dataclass(frozen=True)
class SeeClaim:
    """Read the claim back. `fresh_client`: with a new connection, perhaps to another broker."""

    claim_id: str
    offset: int
    fresh_client: bool


@dataclass(frozen=True)
class ReadWindow:
    """Read a window of the increments topic and report the last increment in it."""

    window: search.SearchWindow


@dataclass(frozen=True)
class Reenter:
    """Make the state in memory that of the last increment: nothing is read, if nobody has fenced since. Otherwise the
    log may have lost what somebody else has committed."""

    last: FoundIncrement
    warm: Warm
    unbroken: bool = True


@dataclass(frozen=True)
class ReadStarts:
    """Read the log starts afresh."""

    last: FoundIncrement


@dataclass(frozen=True)
class Load:
    """Make the state that of the start."""

    start: Start


@dataclass(frozen=True)
class Advance:
    """Bring the state forward from its batch; nothing to do when that is the last one. `copy`: the state is this warm
    copy's; nothing was loaded."""

    base: Base
    last: FoundIncrement
    mode: RestoreMode
    copy: WarmCopy | None = None


@dataclass(frozen=True)
class ReadTopicIds:
    """Ask which topics there are now, and where it counts, whether the log still leads to `kept`."""

    kept: RetainedState


@dataclass(frozen=True)
class ResolveDoubt:
    """Look whether this output was committed: topic, partition, offset."""

    output: tuple[str, int, int]


@dataclass(frozen=True)
class BeginAnew:
    """Write the whole state in memory, then commit an increment that begins the chain with it.

    The state is the one after `standing`, which has the topic ids of today. `outputs` were not committed yet and are
    committed with it; `problem` and `facts` go into the decision.
    """

    standing: Increment
    outputs: tuple[Output, ...]
    problem: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class WriteState:
    """Write a snapshot of the state in memory, which is the one after `last`, and commit an increment that points to
    it. `why`: what could prevent a restore."""

    last: FoundIncrement
    why: str


@dataclass(frozen=True)
class Upgrade:
    """Make the state, which is the one after `last`, one of the app's schema_version. Then write all of it, and commit
    an increment that begins the chain with it."""

    last: FoundIncrement


@dataclass(frozen=True)
class AddInputs:
    """Commit an increment behind `last` that makes these topics inputs, each from its beginning or from where it
    was retired."""

    last: FoundIncrement
    topics: tuple[str, ...]


@dataclass(frozen=True)
class CheckInputs:
    """Compare the anchors, and the positions with the inputs' bounds. `in_memory`: the state comes from memory, so if
    they are refused it matters whether the logs lead to it."""

    last: FoundIncrement
    in_memory: bool = False


@dataclass(frozen=True)
class Wait:
    """Wait before the next `Begin`."""

    delay_ms: int
    error: SnapreplayError


@dataclass(frozen=True)
class GoLive:
    """Begin to process. `fell_back`: recovered not from the newest snapshot, or not by the preferred mode."""

    last: FoundIncrement
    owner_epoch: int
    fallback_from: str | None
    fell_back: bool


@dataclass(frozen=True)
class GiveWay:
    """A newer owner exists."""

    newer: Claim


@dataclass(frozen=True)
class Fail:
    """An operator must act."""

    error: SnapreplayError


Reading = ReadWindow | ReadTopicIds | ResolveDoubt | ReadStarts | Reenter | Load | Advance | CheckInputs
"""Effects that need no ownership: whoever only looks can perform them, too."""

Action = Fence | WriteClaim | SeeClaim | Reading | BeginAnew | WriteState | Upgrade | AddInputs
"""What is performed, and answered by an event."""

End = Wait | GoLive | GiveWay | Fail
"""What ends a recovery, or the attempt."""

Effect = Action | End
