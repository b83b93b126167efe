"""The start of a recovery: the newest usable snapshot, else genesis, else nowhere; and what a later one still needs.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from snapreplay.app.ways import new_app
from snapreplay.errors import StopError
from snapreplay.snapshots.format.records import NO_OFFSET, Genesis, Increment, Pointer


class NoUsableSnapshot(StopError):
    """No snapshot can be used, and the increments topic is not complete."""

    # facts["reasons"]: snapshot id → why


class LogStarts(Struct, frozen=True):
    """First offsets still present: of the increments topic, the snapshots topic, and each input topic."""

    increments_offset: int
    snapshots_offset: int
    inputs: Mapping[str, int] = field(default_factory=dict)


class FromSnapshot(Struct, frozen=True):
    """Load this snapshot, then bring it forward."""

    pointer: Pointer


class FromGenesis(Struct, frozen=True):
    """Start from the empty state; the first increment from `log_start_offset` on is the genesis."""

    genesis: Genesis
    log_start_offset: int


Start = FromSnapshot | FromGenesis


def plan_start(last: Increment, last_offset: int, starts: LogStarts, unusable: Mapping[str, str]) -> Start:
    """Return the next start to try; called again with one more unusable snapshot (id → reason).

    Genesis needs every increment ever written, in both modes: a replay takes the order of the inputs
    and the skipped records from them. A log that starts at offset 0 is whole.

    Raises:
        NoUsableSnapshot: names every pointer with the reason.
    """
    reasons = passed_over(last, starts, unusable)
    if len(reasons) < len(last.pointers):
        return FromSnapshot(last.pointers[len(reasons)])
    if starts.increments_offset == 0 and not is_decided(last):
        return FromGenesis(last.genesis, starts.increments_offset)
    raise _no_usable_snapshot(last, last_offset, starts, reasons)


def passed_over(last: Increment, starts: LogStarts, unusable: Mapping[str, str]) -> dict[str, str]:
    """Return the unusable snapshots before the one to start from, newest first: id → why."""
    reasons: dict[str, str] = {}
    for pointer in last.pointers:
        reason = unusable.get(pointer.snapshot_id) or trimmed(pointer, starts)
        if reason is None:
            break
        reasons[pointer.snapshot_id] = reason
    return reasons


def is_decided(last: Increment) -> bool:
    """Say whether the chain begins at a decision; only a snapshot has the state that it began with."""
    return chain_began_at(last, 0) != NO_OFFSET


def chain_began_at(increment: Increment, offset: int) -> int:
    """Return the offset of the newest decision up to this increment, which lies at `offset`, that began a new
    chain; NO_OFFSET: the chain goes back to the genesis."""
    if increment.begins_chain:
        return offset
    before = increment.last_anew_offset
    return increment.last_decision_offset if before is None else before


def trimmed(pointer: Pointer, starts: LogStarts) -> str | None:
    """Say why the topics no longer hold what this snapshot needs: its chunks, and the records after its increment."""
    if pointer.first_chunk_offset < starts.snapshots_offset:
        return (
            f"needs the snapshots topic from offset {pointer.first_chunk_offset},"
            f" which now starts at {starts.snapshots_offset}"
        )
    if pointer.increment_offset + 1 < starts.increments_offset:
        return (
            f"needs the increments topic after offset {pointer.increment_offset},"
            f" which now starts at {starts.increments_offset}"
        )
    return None


def _no_usable_snapshot(
    last: Increment, last_offset: int, starts: LogStarts, reasons: Mapping[str, str]
) -> NoUsableSnapshot:
    tried = "; ".join(f"snapshot {name}: {reason}" for name, reason in reasons.items())
    genesis = f"the increments topic starts at offset {starts.increments_offset}, not at 0"
    if is_decided(last):
        genesis = "a decision (see `decisions` of the partition) has begun a new chain since then"
    return NoUsableSnapshot(
        f"no snapshot can be used to restore batch {last.batch} (increment at offset {last_offset}):"
        f" {tried or 'it points to none'}; nor can the genesis: {genesis}",
        hint=_way_out(last, starts),
        reasons=dict(reasons),
        increments_start_offset=starts.increments_offset,
        snapshots_start_offset=starts.snapshots_offset,
    )


def _way_out(last: Increment, starts: LogStarts) -> str:
    restore = f"restore both topics of {last.origin.app_id!r} from a backup or mirror"
    short = [
        f"{topic} (needs {first}, starts at {starts.inputs.get(topic, 'unknown')})"
        for topic, first in sorted(last.genesis.start_offsets.items())
        if starts.inputs.get(topic, first + 1) > first
    ]
    if short:
        return (
            f"{restore}, because the input alone cannot rebuild the state: {', '.join(short)}; or process what is left"
            f" of it under a new app id, with an empty state: {new_app()}"
        )
    return (
        f"{restore}; or, because the input still reaches back to the genesis, process it again under a new app id:"
        f" {new_app()}; all outputs are then written a second time"
    )


class Floors(NamedTuple):
    """Everything below may be deleted, in the increments topic and in the snapshots topic."""

    increments_offset: int
    snapshots_offset: int


def retention_floors(last: Increment, last_offset: int, snapshots_kept: int) -> Floors | None:
    """Return the floors that keep the newest `snapshots_kept` (at least 1) snapshots; None: no trim.

    Only snapshots that the last committed increment points to count. Other manifests, however new and whole, neither
    keep nor free anything. Compute the floors from the log directly before each trim.

    `last_offset` is that of `last` in the increments topic. The increments floor is the increment of
    the oldest kept snapshot's batch, which is kept, and always below `last_offset`. The snapshots
    floor is the lowest chunk of all kept snapshots.
    """
    kept = last.pointers[: max(1, snapshots_kept)]
    if not kept:
        return None
    oldest_offset = min(pointer.increment_offset for pointer in kept)
    return Floors(
        increments_offset=max(0, min(oldest_offset, last_offset - 1)),
        snapshots_offset=min(min(p.first_chunk_offset, p.manifest_offset) for p in kept),
    )
