"""A snapshot made from the log alone: which batch it is of, the state after that batch, proved, and its records. Pure.

The manifest is made from an increment that was read from the log, so none can be of a batch that the log lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from snapreplay.counted import counted
from snapreplay.errors import DamagedError, SnapreplayError, StopError
from snapreplay.snapshots.format.chunks import ChunkWriter
from snapreplay.snapshots.format.envelope import RecordKind, enveloped
from snapreplay.snapshots.format.records import ChunkRef, Manifest, Pointer
from snapreplay.snapshots.plan import begun_anew_at
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.increments import Folding, IncrementsProof
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.report import AuditedPartition, Findings
from snapreplay.snapshots.proof.state import At, Entries, bases, last_batch, manifest_of
from snapreplay.state.contract import Cursor, ShardSlice
from snapreplay.state.digest import Digest
from snapreplay.state.steps import all_of


class NotCompactable(StopError):
    """What the logs hold does not prove the state after their last batch.

    Safe: No snapshot was proposed, and the app continues.
    """


class SnapshotSuperseded(StopError):
    """A snapshot of this batch, or of a later one, exists by now."""


class Folded(NamedTuple):
    """The state after the batch of `found`; its digest is the recorded one.

    `cursor`: over all of its entries. `shard_count`: as a manifest says it. `base`: None for the genesis.
    """

    found: Found
    cursor: Cursor
    shard_count: int
    base: Pointer | None
    batches: int
    bridged: Sequence[int]


class Written(NamedTuple):
    """The chunks of a state in the snapshots topic. `digest`: of their entries, as read back."""

    partition: int
    state: Folded
    snapshot_id: str
    chunks: list[ChunkRef]
    digest: Digest


def folded(app_id: str, moment: Moment, logs: Logs) -> Folded | None:
    """Return the state after the last batch, from the first base that leads there; every batch on the way is proved.
    None: there is no batch, or a snapshot of its state exists.

    Raises:
        NotCompactable: something on the way is not as it was recorded, or only a replay leads there.
        SnapreplayError: the log cannot be read.
    """
    last = last_batch(moment, logs, At())
    if last is None or _is_current(logs, moment, last):
        return None
    if last.increment.digest is None:
        raise NotCompactable(
            f"batch {last.increment.batch} recorded no digest of the state, so no snapshot of it could be proved",
            hint="a state that is no map is compacted by its owner alone, by the snapshots that it takes",
        )
    damage: SnapreplayError | None = None
    for base in bases(moment, last, last):
        try:
            return _folded_from(app_id, moment, logs, last, base)
        except DamagedError as error:
            damage = damage or error
    if damage is None:
        raise NotCompactable(
            f"neither a snapshot nor the genesis is left to begin with: the increments begin at {moment.log_start},"
            f" the snapshots at {moment.snapshots_start}"
        )
    raise NotCompactable(
        damage.message, hint=f"`snapreplay audit --app-id {app_id} --level changes` lists what is wrong"
    )


def _is_current(logs: Logs, moment: Moment, last: Found) -> bool:
    """Say whether the newest snapshot has the state after the last batch: nothing was processed since."""
    newest = next(iter(last.increment.pointers), None)
    if newest is None:
        return False
    if newest.batch >= last.increment.batch:
        return True
    if newest.manifest_offset < moment.snapshots_start:
        return False
    try:
        manifest = manifest_of(logs, newest)
    except DamagedError:
        return False
    return manifest.positions == last.increment.positions and manifest.digest in {None, last.increment.digest}


def _folded_from(app_id: str, moment: Moment, logs: Logs, found: Found, base: Pointer | None) -> Folded:
    increment = found.increment
    state, bridged = _walked(app_id, moment, logs, found, base)
    if state is None:
        raise NotCompactable(
            f"a batch before batch {increment.batch} recorded no changes, so only a replay leads to its state",
            hint="let the owner take its snapshots, or set `changelog.enabled=true`",
        )
    cursor = state.mark()
    if cursor.digest != increment.digest:
        raise DamagedError(
            f"the state after batch {increment.batch} has digest {cursor.digest}, but {increment.digest} was recorded"
        )
    batches = increment.batch - (0 if base is None else base.batch)
    return Folded(found, cursor, state.shard_count, base, batches, bridged)


def _walked(
    app_id: str, moment: Moment, logs: Logs, found: Found, base: Pointer | None
) -> tuple[Entries | None, list[int]]:
    """Walk from `base` to `found` along the chain; also return the increments that were bridged, as a recovery bridges
    them. None: a batch on the way recorded no changes.

    Raises:
        DamagedError: something on the way is not as it was recorded.
    """
    start = moment.log_start if base is None else base.increment_offset
    manifests = {} if base is None else {base.manifest_offset: manifest_of(logs, base)}
    findings = Findings(moment.partition)
    place = AuditedPartition(app_id, moment.partition, start, moment.snapshots_start)
    folding = Folding(place, findings, manifests, logs)
    proof = IncrementsProof(place, findings, folding=folding)
    proof.of(logs, found.offset + 1)
    for finding in findings.found:
        if finding.topic == place.increments and finding.offset in proof.bridged:
            continue
        where = f"{finding.topic}-{finding.partition}, offset {finding.offset}"
        raise DamagedError(f"{where}: {finding.detail}")
    if proof.last != found:
        raise DamagedError(f"batch {found.increment.batch} is not at offset {found.offset} any more")
    if folding.state is None and proof.bridged:
        raise DamagedError(
            f"{place.increments}-{moment.partition}, offset {proof.bridged[0]}: the increment cannot be read, and its"
            " changes do not lead to a recorded digest"
        )
    return folding.state, proof.bridged


def chunk_records(snapshot_id: str, cursor: Cursor, record_bytes_max: int) -> Iterator[bytes]:
    """Yield the values of all chunk records, by sequence.

    Raises:
        EntryTooLarge: a single entry does not fit into a chunk.
    """
    writer = ChunkWriter(snapshot_id, record_bytes_max)
    while slices := all_of(cursor.slicing(writer.raw_bytes)):
        yield from _encoded(writer, slices, cursor.store)


def _encoded(writer: ChunkWriter, slices: Sequence[ShardSlice], store: str) -> Iterator[bytes]:
    value = enveloped(RecordKind.CHUNK, all_of(writer.packing(slices, store)), compress=True)
    halves = writer.halves_unless_fitting(slices, value)
    if not halves:
        yield value
    for half in halves:
        yield from _encoded(writer, half, store)


def check_still_wanted(found: Found, last: Found | None) -> None:
    """Check that a snapshot of the batch of `found` is still wanted; `last`: the last increment as it is now.

    Raises:
        SnapshotSuperseded, NotCompactable: no manifest may be written.
    """
    batch, offset = found.increment.batch, found.offset
    if last is None or last.increment.batch < batch:
        there = "none" if last is None else f"batch {last.increment.batch}"
        raise NotCompactable(f"the log has lost batch {batch}: its last one is now {there}")
    for pointer in last.increment.pointers[:1]:
        if pointer.batch >= batch:
            raise SnapshotSuperseded(
                f"snapshot {pointer.snapshot_id} of batch {pointer.batch} exists, which is not older than batch {batch}"
            )
    begun_at = begun_anew_at(last.increment, last.offset)
    if begun_at > offset:
        raise NotCompactable(f"a decision at offset {begun_at} has begun a new chain since")


def proposal(written: Written, read_again: Found, proposed_by: str, created_at_ms: int) -> Manifest:
    """Make the manifest of the chunks.

    Args:
        read_again: what the log holds at the offset of the batch's increment, just now.

    Raises:
        NotCompactable: the log holds another increment there.
        DamagedError: the chunks do not hold the state of that batch.
    """
    increment, digest = read_again.increment, written.digest
    if read_again != written.state.found:
        raise NotCompactable(
            f"offset {read_again.offset} holds batch {increment.batch} of owner epoch {increment.owner_epoch} with"
            f" digest {increment.digest} now, not what was folded"
        )
    if digest != increment.digest:
        raise DamagedError(
            f"{counted(len(written.chunks), 'chunk')} of snapshot {written.snapshot_id} read back with digest"
            f" {digest}, but batch {increment.batch} has {increment.digest}"
        )
    return Manifest(
        origin=increment.origin,
        snapshot_id=written.snapshot_id,
        owner_epoch=increment.owner_epoch,
        batch=increment.batch,
        increment_offset=read_again.offset,
        positions=increment.positions,
        chunks=written.chunks,
        entry_count=digest.count,
        digest=digest,
        entries_digest=digest,
        stream_time_ms=increment.stream_time_ms,
        shard_count=written.state.shard_count,
        created_at_ms=created_at_ms,
        genesis=increment.genesis,
        topic_ids=increment.topic_ids,
        proposed_by=proposed_by,
        store_digests=increment.store_digests,
    )
