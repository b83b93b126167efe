"""The events that can happen to a recovery. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Claim
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import LogStarts


class Begin(Struct, frozen=True):
    """Start, or start again after a wait."""


class FenceDone(Struct, frozen=True):
    """The transactional producer has started; `unbroken`: no other process had fenced since our last fence."""

    lineage: Lineage | None = None
    unbroken: bool = True


class ClaimAcknowledged(Struct, frozen=True):
    """The claim record's transaction answered OK."""

    claim_id: str
    offset: int


class ClaimHidden(Struct, frozen=True):
    """The reader did not deliver the claim (`end_offset <= F`) `waited_ms` after the claim."""

    end_offset: int
    high_watermark: int
    waited_ms: int


class ClaimSeen(Struct, frozen=True):
    """The reader delivered the record at F and it is ours. `newer` is a claim found after it."""

    log_start_offset: int
    newer: Claim | None


class WindowRead(Struct, frozen=True):
    """A window before the claim was read to its end."""

    found: FoundIncrement | None


class TopicIdsRead(Struct, frozen=True):
    """Topic → id, without missing topics. `restorable`: the logs hold what the last increment of the state in memory
    needs."""

    topic_ids: Mapping[str, str]
    restorable: bool = True


class DoubtResolved(Struct, frozen=True):
    """The answer whether the batch in doubt was committed; None when its output cannot be read any more, `why`."""

    committed: bool | None
    why: str = ""


class StateWritten(Struct, frozen=True):
    """The state in memory is in the log: `last` points to a snapshot of it."""

    last: FoundIncrement


class StartsRead(Struct, frozen=True):
    """Fresh log starts of our topics and of the inputs."""

    starts: LogStarts


class Reentered(Struct, frozen=True):
    """The state in memory is that of the last increment, digest compared."""


class RetainedUnusable(Struct, frozen=True):
    """The state in memory does not have the recorded digest."""


class CopyUnusable(Struct, frozen=True):
    """The warm copy does not lead to the last increment: another chain, or what is between them cannot be used."""


class StartLoaded(Struct, frozen=True):
    """The state is that of the start (snapshot, or empty at genesis), checked; the walk begins at `base`."""

    base: Base


class SnapshotUnusable(Struct, frozen=True):
    """A snapshot cannot be used: damaged, incomplete, trimmed. `refusal`: it is whole, but this code cannot use it."""

    snapshot_id: str
    reason: str
    refusal: StopError | None = None


class Advanced(Struct, frozen=True):
    """The state is that of the last increment, digest compared. `damage`: of an increment that was not needed."""

    damage: str | None = None


class ModeUnavailable(Struct, frozen=True):
    """This mode cannot be taken from this start (damaged changes, trimmed input)."""

    mode: RestoreMode
    error: SnapreplayError


class InputsChecked(Struct, frozen=True):
    """Each input is the log that was processed, and reaches our position. `appeared`: topics that become inputs."""

    appeared: tuple[str, ...] = ()


class InputsAdded(Struct, frozen=True):
    """The topics that appeared are inputs since this increment, the last one now."""

    last: FoundIncrement


class InputsRefused(Struct, frozen=True):
    """An input is missing, shorter, trimmed or another log. `restorable`: the logs lead to the state in memory."""

    error: SnapreplayError
    restorable: bool = True


class EffectFailed(Struct, frozen=True):
    """The last effect raised."""

    error: SnapreplayError


Event = (
    Begin
    | FenceDone
    | ClaimAcknowledged
    | ClaimHidden
    | ClaimSeen
    | WindowRead
    | TopicIdsRead
    | DoubtResolved
    | StateWritten
    | Reentered
    | RetainedUnusable
    | StartsRead
    | CopyUnusable
    | StartLoaded
    | SnapshotUnusable
    | Advanced
    | ModeUnavailable
    | InputsChecked
    | InputsAdded
    | InputsRefused
    | EffectFailed
)
