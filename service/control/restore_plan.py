"""The restore plan of a LIVE partition: what a recovery would do now, and how long it would take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from snapreplay.service.control.vocabulary import Count, Seconds, Time, one_of, said
from snapreplay.service.core.adoption import records_between
from snapreplay.snapshots.format.records import Increment, Pointer


class Rates(msgspec.Struct, frozen=True):
    """The speed of restores. A rate is `measured` by the last restore of this process that was large enough, else a
    documented constant."""

    load_bytes_per_second: float = 20_000_000.0
    changes_per_second: Annotated[float, said("Records of the input, brought forward by changes.")] = 100_000.0
    replay_per_second: Annotated[float, said("Records of the input, by a replay.")] = 20_000.0
    before_loading_seconds: Annotated[Seconds, said("Fencing, claiming, locating.")] = 0.2
    measured: Annotated[tuple[str, ...], said("The names of those that are measured.")] = ()


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


class InputHeadroom(msgspec.Struct, frozen=True):
    """The rest of an input that its retention may delete before it meets what a recovery, or the next batch, needs."""

    topic: str
    needed_from_offset: Count
    start_offset: Annotated[Count, said("Of the log now.")]
    headroom_offsets: Annotated[Count, said("Between the two.")]
    headroom_seconds: Annotated[
        Seconds | None,
        said(
            "Until the first needed record is as old as the shortest `retention.ms` of the inputs; brokers delete whole"
            " segments, so it stays at least that long. Null: none is there, or none is deleted by time."
        ),
    ]


class RestorePlan(msgspec.Struct, frozen=True):
    """The ways that a recovery would take now, looked up once a minute."""

    mode: Annotated[str, one_of("changes", "replay")]
    first: Annotated[PlannedRestore | None, said("Null: no recovery is possible, see `unrecoverable_reason`.")]
    fallbacks: Annotated[tuple[PlannedRestore, ...], said("Taken in this order if it cannot be used after all.")]
    unusable: Annotated[dict[str, str], said("Snapshot that is pointed to and cannot be used → why.")]
    inputs: tuple[InputHeadroom, ...]
    rates: Rates
    made_at: Time


class Facts(NamedTuple):
    """The facts in a manifest that a plan needs."""

    positions: Mapping[str, int]
    size_bytes: int
    entries: int


def way(last: Increment, mode: str, rates: Rates, pointer: Pointer | None, facts: Facts) -> PlannedRestore:
    """Return the way to the last batch from this snapshot, or from the genesis (None); `facts` are of its state."""
    records = records_between(facts.positions, last.positions)
    advanced = rates.replay_per_second if mode == "replay" else rates.changes_per_second
    batch = pointer.batch if pointer is not None else 0
    return PlannedRestore(
        snapshot_id=pointer.snapshot_id if pointer is not None else None,
        batch=batch,
        manifest_offset=pointer.manifest_offset if pointer is not None else None,
        size_bytes=facts.size_bytes,
        entries=facts.entries,
        batches=last.batch - batch,
        records=records,
        predicted_seconds=rates.before_loading_seconds
        + facts.size_bytes / rates.load_bytes_per_second
        + records / advanced,
    )
