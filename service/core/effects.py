"""The effects that a recovery asks for, one thing at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import search
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.retained import RetainedState, Warm, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Claim, Increment
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import Start


class Fence(Struct, frozen=True):
    """Start a new transactional producer (discarding any old one)."""


class WriteClaim(Struct, frozen=True):
    """Commit one claim record with a new random id."""


class SeeClaim(Struct, frozen=True):
    """Read the claim back. `fresh_client`: with a new connection, perhaps to another broker."""

    claim_id: str
    offset: int
    fresh_client: bool


class ReadWindow(Struct, frozen=True):
    """Read a window of the increments topic and report the last increment in it."""

    window: search.SearchWindow


class Reenter(Struct, frozen=True):
    """Make the state in memory that of the last increment. Unless it is `unbroken`, the log may have lost what another
    process has committed."""

    last: FoundIncrement
    warm: Warm
    unbroken: bool = True


class ReadStarts(Struct, frozen=True):
    """Read the log starts afresh."""

    last: FoundIncrement


class Load(Struct, frozen=True):
    """Load the state of the start. `last` is the increment to which the state is advanced afterwards."""

    start: Start
    last: FoundIncrement


class Advance(Struct, frozen=True):
    """Bring the state forward from `base` to `last`. `copy`: the state is this warm copy's, and nothing was loaded."""

    base: Base
    last: FoundIncrement
    mode: RestoreMode
    copy: WarmCopy | None = None


class ReadTopicIds(Struct, frozen=True):
    """Ask which topics there are now, and where it counts, whether the log still leads to `kept`."""

    kept: RetainedState


class ResolveDoubt(Struct, frozen=True):
    """Look whether this output was committed: topic, partition, offset."""

    output: tuple[str, int, int]


class BeginChain(Struct, frozen=True):
    """Write the whole state in memory, which is the one after `standing`, then commit an increment that begins the
    chain with it. `problem` and `facts` go into the decision."""

    standing: Increment
    problem: str
    facts: Mapping[str, object]


class WriteState(Struct, frozen=True):
    """Write a snapshot of the state after `last`, and commit an increment that points to it. `why`: what could prevent
    a restore."""

    last: FoundIncrement
    why: str


class Upgrade(Struct, frozen=True):
    """Upgrade the state after `last` to the app's schema_version, write it, and begin a new chain with it."""

    last: FoundIncrement


class AddInputs(Struct, frozen=True):
    """Commit an increment behind `last` that makes these topics inputs, from their beginning or where they were
    retired."""

    last: FoundIncrement
    topics: tuple[str, ...]


class CheckInputs(Struct, frozen=True):
    """Compare anchors and positions with the inputs. `in_memory`: if they are refused, it matters whether the logs lead
    to the state."""

    last: FoundIncrement
    in_memory: bool = False


class Wait(Struct, frozen=True):
    """Wait before the next `Begin`."""

    delay_ms: int
    error: SnapreplayError


class GoLive(Struct, frozen=True):
    """Begin to process. `fell_back`: recovered not from the newest snapshot, or not by the preferred mode."""

    last: FoundIncrement
    owner_epoch: int
    fallback_from: str | None
    fell_back: bool


class GiveWay(Struct, frozen=True):
    """A newer owner exists."""

    newer: Claim


class Fail(Struct, frozen=True):
    """An operator must act."""

    error: SnapreplayError


Reading = ReadWindow | ReadTopicIds | ResolveDoubt | ReadStarts | Reenter | Load | Advance | CheckInputs
"""Effects that need no ownership: a process that only looks can perform them, too."""

Action = Fence | WriteClaim | SeeClaim | Reading | BeginChain | WriteState | Upgrade | AddInputs
"""What is performed, and answered by an event."""

End = Wait | GoLive | GiveWay | Fail
"""What ends a recovery, or the attempt."""

Effect = Action | End
