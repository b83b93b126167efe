"""The restore plan of a LIVE partition: what a recovery would do now, and how long it would take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from snapreplay.service.control.vocabulary import Count, Seconds, Time, one_of, said
from snapreplay.service.core.adoption import records_between
from snapreplay.service.core.snapshot_policy import Speed
from snapreplay.snapshots.format.records import Increment, Pointer


class Rates(msgspec.Struct, frozen=True):
    """The speed of restores. A rate is `measured` by the last restore of this process that was large enough, else a
    documented constant."""

    load_bytes_per_second: float = 20_000_000.0
    changes_per_second: Annotated[float, said("Records of the input, brought forward by changes.")] = 100_000.0
    replay_per_second: Annotated[float, said("Records of the input, by a replay.")] = 20_000.0
    before_loading_seconds: Annotated[Seconds, said("Fencing, claiming, locating; at the end, the digest.")] = 0.2
    measured: Annotated[tuple[str, ...], said("The names of those that are measured.")] = ()

    def speed(self, mode: str | None) -> Speed:
        """Return the speed of this mode; None: nothing is brought forward."""
        advanced = self.replay_per_second if mode == "replay" else self.changes_per_second
        return Speed(self.before_loading_seconds, self.load_bytes_per_second, advanced)


class PlannedRestore(msgspec.Struct, frozen=True):
    """A way to the last batch: a start, what is brought forward from there, and the time that it takes."""

    snapshot_id: Annotated[str | None, said("Null: it starts from the genesis.")]
    batch: Annotated[Count, said("Of the snapshot.")]
    manifest_offset: Count | None
    size_bytes: Count
    entries: Count
    batches: Annotated[Count, said("To bring forward.")]
    records: Annotated[Count, said("Input offsets to bring forward: an upper bound of the records.")]
    predicted_seconds: Annotated[Seconds, said("From fencing to live, if it need not wait.")]


class Forecast(msgspec.Struct, frozen=True):
    """The prediction of a recovery, made when its loading began. Waiting is not predicted."""

    seconds: Annotated[Seconds, said("From fencing to live, by the rates that this process knew then.")]
    live_at: Annotated[Time, said("When the partition is live by it, by the clock of this process.")]


class RestorePlan(msgspec.Struct, frozen=True):
    """The way that a recovery would take now, looked up once a minute."""

    mode: Annotated[str, one_of("changes", "replay")]
    first: Annotated[PlannedRestore | None, said("Null: no recovery is possible, see `unrecoverable_reason`.")]
    rates: Rates
    made_at: Time
    replay_needs: Annotated[tuple[str, ...], said("URLs of the schema registries that a replay must reach.")] = ()


class RestoreObjective(msgspec.Struct, frozen=True):
    """The objective `restore.objective_seconds`, and whether a restore now would keep it by the prediction."""

    seconds: Annotated[Seconds, said("As it is set.")]
    predicted_seconds: Annotated[Seconds, said("Of a restore now.")]
    fresh_seconds: Annotated[Seconds, said("Of a restore directly after a snapshot: no snapshot makes it shorter.")]
    is_met: bool
    reason: Annotated[str, said("Why it is not met; empty: it is.")] = ""


class DrillState(StrEnum):
    """The progress and the verdict of a drill."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # a recovery would not come to the committed state, or not by the newest snapshot
    GIVEN_UP = "given_up"  # it proves nothing


class Drill(msgspec.Struct, frozen=True):
    """A restore of a live partition by its owner, beside the processing, into a store that is thrown away."""

    state: Annotated[str, one_of(*DrillState)]
    started_at: Time
    finished_at: Time | None = None
    batch: Annotated[Count | None, said("To which it was restored.")] = None
    snapshot_id: Annotated[str | None, said("Null: it started from the genesis.")] = None
    mode: Annotated[str | None, said(enum=["changes", "replay", None])] = None
    entries: Count = 0
    digest: Annotated[
        str | None, said("The recorded digest, which the restored state also has; null: the drill has not succeeded.")
    ] = None
    seconds: Annotated[Seconds | None, said("Of a restore, as measured, without the pauses of the drill.")] = None
    predicted_seconds: Seconds | None = None
    rested_seconds: Annotated[Seconds, said("So that it kept within `restore.drill_share`.")] = 0.0
    detail: Annotated[str, said("Why it failed or was given up.")] = ""


class RestoreFacts(NamedTuple):
    """The facts in a manifest that a plan needs."""

    positions: Mapping[str, int]
    size_bytes: int
    entries: int
    created_at: datetime | None = None


def way(last: Increment, mode: str, rates: Rates, pointer: Pointer | None, facts: RestoreFacts) -> PlannedRestore:
    """Return the way to the last batch from this snapshot, or from the genesis (None); `facts` are of its state."""
    records = records_between(facts.positions, last.positions)
    batch = pointer.batch if pointer is not None else 0
    return PlannedRestore(
        snapshot_id=pointer.snapshot_id if pointer is not None else None,
        batch=batch,
        manifest_offset=pointer.manifest_offset if pointer is not None else None,
        size_bytes=facts.size_bytes,
        entries=facts.entries,
        batches=last.batch - batch,
        records=records,
        predicted_seconds=rates.speed(mode).seconds(facts.size_bytes, records),
    )
