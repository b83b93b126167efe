"""The compaction of a partition: its newest snapshot and the changes since become a new one, proposed to the owner.

Chunks mean nothing without their manifest. It is written last, after the chunks were read back and the log was checked
again. A task that dies leaves unused chunks. A task that runs twice proposes twice, and the owner adopts one proposal.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple
from zlib import crc32

import msgspec

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError, UsageError
from snapreplay.snapshots.format.chunks import ChunkWriter
from snapreplay.snapshots.format.envelope import RecordKind, encode, headers_for, headers_of
from snapreplay.snapshots.format.records import ChunkRef, Increment, Manifest, Pointer
from snapreplay.snapshots.jobs.fixed_logs import LogClient, PartitionLogs, Trimmed, moment_of, untrimmed
from snapreplay.snapshots.log.loading import hashing
from snapreplay.snapshots.plan import chain_began_at
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.increments import Folding, IncrementsProof
from snapreplay.snapshots.proof.records import Logs, Moment, judge
from snapreplay.snapshots.proof.report import AuditedPartition, Findings
from snapreplay.snapshots.proof.state import Entries, bases, in_one_go, last_batch, manifest_of
from snapreplay.state.composite import CompositeCursor
from snapreplay.state.digest import Digest, digest_of_stores
from snapreplay.state.steps import all_of


class NotCompactable(StopError):
    """The topics do not prove the state after their last batch.

    Safe: No snapshot was proposed, and the app continues.
    """


_AGAIN = "run the job again"
_LOST = "look at the partition with `snapreplay restore-status`: its owner, or its hint, says what happened to the log"


class SnapshotSuperseded(StopError):
    """A snapshot of this batch, or of a later one, exists already."""


class Folded(NamedTuple):
    """The state after the batch of `found`; its digest is the recorded one.

    `cursor`: over all of its entries. `shard_count`: as a manifest says it. `base`: None for the genesis.
    """

    found: Found
    cursor: CompositeCursor
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
    last = last_batch(moment, logs)
    if last is None or _is_current(logs, moment, last):
        return None
    damage: SnapreplayError | None = None
    for base in bases(moment, last):
        try:
            return _folded_from(app_id, moment, logs, last, base)
        except DamagedError as error:
            damage = damage or error
    if damage is None:
        raise NotCompactable(
            f"neither a snapshot nor the genesis is left to begin with: the increments begin at {moment.log_start},"
            f" the snapshots at {moment.snapshots_start}",
            hint=_LOST,
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
    return manifest.positions == last.increment.positions and manifest.digest == last.increment.digest


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


def check_still_wanted(found: Found, last: Found | None) -> None:
    """Check that a snapshot of the batch of `found` is still wanted; `last`: the last increment as it is now.

    Raises:
        SnapshotSuperseded, NotCompactable: no manifest may be written.
    """
    batch, offset = found.increment.batch, found.offset
    if last is None or last.increment.batch < batch:
        there = "none" if last is None else f"batch {last.increment.batch}"
        raise NotCompactable(f"the log has lost batch {batch}: its last one is now {there}", hint=_LOST)
    for pointer in last.increment.pointers[:1]:
        if pointer.batch >= batch:
            raise SnapshotSuperseded(
                f"snapshot {pointer.snapshot_id} of batch {pointer.batch} exists, which is not older than batch {batch}"
            )
    begun_at = chain_began_at(last.increment, last.offset)
    if begun_at > offset:
        raise NotCompactable(f"a decision at offset {begun_at} has begun a new chain since", hint=_AGAIN)


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
            f" digest {increment.digest} now, not what was folded",
            hint=_LOST,
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


class Outcome(StrEnum):
    """The outcome for a partition."""

    PROPOSED = "proposed"
    SUPERSEDED = "superseded"  # a newer snapshot exists
    NOTHING_TO_DO = "nothing to do"
    NOT_POSSIBLE = "not possible"


class PartitionResult(msgspec.Struct, frozen=True):
    """The result for a partition.

    Attributes:
        batch, increment_offset: of the proposed snapshot; -1 without one.
        manifest_offset: of the proposal in the snapshots topic; -1 without one.
        batches: since the snapshot (`base`, None: the genesis) that it was made from.
        bridged: offsets of increments on the way that cannot be read. The digest of a later batch shows that nothing is
            missing.
        reason: why there is no proposal.
    """

    partition: int
    outcome: Outcome
    batch: int = -1
    increment_offset: int = -1
    snapshot_id: str = ""
    manifest_offset: int = -1
    base: str | None = None
    batches: int = 0
    entries: int = 0
    chunks: int = 0
    size_bytes: int = 0
    bridged: list[int] = []
    reason: str = ""
    hint: str = ""


class CompactionReport(msgspec.Struct, frozen=True):
    """The report on all partitions, by number."""

    app_id: str
    partitions: list[PartitionResult]
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code, 0: every partition has a proposal or needs none. 1: some do not. (2: it could not run, and
        raised.)"""
        return int(any(each.outcome is Outcome.NOT_POSSIBLE for each in self.partitions))


def compacted(
    app_id: str, proposed_by: str, now_ms: Callable[[], int], client: LogClient, moment: Moment
) -> PartitionResult:
    """Compact a partition.

    Raises:
        RetryableError, UsageError: the job cannot continue. A proposal that was being written may be there.
    """

    def once(moment: Moment) -> PartitionResult:
        try:
            return _compacted(app_id, proposed_by, now_ms, client, moment)
        except SnapshotSuperseded as error:  # a newer snapshot has trimmed the log: reading it again leads to the same
            return _without(moment.partition, Outcome.SUPERSEDED, error)

    try:
        return untrimmed(client, app_id, moment, once)
    except Trimmed as error:
        return _without(moment.partition, Outcome.NOT_POSSIBLE, error)
    except (RetryableError, UsageError):
        raise
    except SnapreplayError as error:
        return _without(moment.partition, Outcome.NOT_POSSIBLE, error)


def _without(partition: int, outcome: Outcome, error: SnapreplayError) -> PartitionResult:
    return PartitionResult(partition, outcome, reason=error.message, hint=error.hint)


def _compacted(
    app_id: str, proposed_by: str, now_ms: Callable[[], int], client: LogClient, moment: Moment
) -> PartitionResult:
    ids = client.topic_ids(names.own_pair(app_id))
    written = _written(app_id, client, moment)
    if written is None:
        return PartitionResult(moment.partition, Outcome.NOTHING_TO_DO)
    found = _looked_again(app_id, client, written, ids)
    manifest = proposal(written, found, proposed_by, now_ms())
    offset = client.append(names.snapshots_topic(app_id), moment.partition, encode(manifest), headers_of(manifest))
    state = written.state
    return PartitionResult(
        moment.partition,
        Outcome.PROPOSED,
        batch=manifest.batch,
        increment_offset=manifest.increment_offset,
        snapshot_id=manifest.snapshot_id,
        manifest_offset=offset,
        base=None if state.base is None else state.base.snapshot_id,
        batches=state.batches,
        entries=manifest.entry_count,
        chunks=len(manifest.chunks),
        size_bytes=sum(ref.size_bytes for ref in manifest.chunks),
        bridged=list(state.bridged),
    )


def _looked_again(app_id: str, client: LogClient, written: Written, ids: dict[str, str]) -> Found:
    """Return what the log holds now at the offset of the batch, for which a manifest is still wanted.

    Raises:
        SnapshotSuperseded, NotCompactable: no manifest may be written.
    """
    if (now := client.topic_ids(names.own_pair(app_id))) != ids:
        raise NotCompactable(
            f"the topics of {app_id!r} were created again: their ids were {dict(ids)}, they are {now}", hint=_LOST
        )
    increment, offset = written.state.found.increment, written.state.found.offset
    for topic, topic_id in ids.items():
        recorded = increment.topic_ids.get(topic, topic_id)
        if recorded != topic_id:
            raise NotCompactable(
                f"{topic} was created again: its id is {topic_id}, but batch {increment.batch} recorded {recorded}",
                hint=_LOST,
            )
    moment = moment_of(client, app_id, written.partition)
    logs = PartitionLogs(client, app_id, written.partition)
    if written.chunks and written.chunks[0].offset < moment.snapshots_start:
        raise SnapshotSuperseded(
            f"the owner has trimmed the snapshots topic to offset {moment.snapshots_start}, above the first chunk"
            f" at {written.chunks[0].offset}: it has newer snapshots"
        )
    check_still_wanted(written.state.found, last_batch(moment, logs))
    if moment.log_start <= offset < moment.log_end:
        for records in logs.increments(offset, offset + 1):
            entry = judge(records[0]).entry
            if isinstance(entry, Increment):
                return Found(records[0].offset, entry)
    raise NotCompactable(f"offset {offset} of the increments topic holds no increment any more", hint=_LOST)


def _written(app_id: str, client: LogClient, moment: Moment) -> Written | None:
    """Fold the last batch's state and write its chunks; None: there is nothing to do."""
    logs = PartitionLogs(client, app_id, moment.partition)
    state = folded(app_id, moment, logs)
    if state is None:
        return None
    snapshot_id, refs = uuid.uuid4().hex, list[ChunkRef]()
    topic, headers = names.snapshots_topic(app_id), headers_for(RecordKind.CHUNK, snapshot_id)
    writer, cursor = ChunkWriter(snapshot_id), state.cursor
    while slices := all_of(cursor.slicing(writer.raw_bytes)):
        for value in in_one_go(logs, writer.chunks(slices, cursor.store)):
            offset = client.append(topic, moment.partition, value, headers)
            refs.append(ChunkRef(offset, len(refs), len(value), crc32(value)))
    found = in_one_go(logs, hashing(topic, refs, snapshot_id, state.shard_count))
    return Written(moment.partition, state, snapshot_id, refs, digest_of_stores(found))
