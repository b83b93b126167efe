"""The compaction of a partition: its newest snapshot and the changes since become a new one, proposed to the owner.

Chunks mean nothing until the manifest, which is written last, after they were read back and the log was looked at once
more. A task that dies leaves chunks that nobody reads. One that runs twice proposes twice, and the owner adopts one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from enum import StrEnum
from zlib import crc32

import msgspec

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, UsageError
from snapreplay.snapshots.format.chunks import open_chunk, reading_back
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, encode, headers_for, headers_of
from snapreplay.snapshots.format.records import ChunkRef, Increment
from snapreplay.snapshots.jobs.fixed_logs import LogClient, PartitionLogs, moment_of, starts_of
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.compaction import (
    NotCompactable,
    SnapshotSuperseded,
    Written,
    check_still_wanted,
    chunk_records,
    folded,
    proposal,
)
from snapreplay.snapshots.proof.records import Moment, judge
from snapreplay.snapshots.proof.state import At, last_batch
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.steps import all_of


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


_ATTEMPTS = 3


def compacted(
    app_id: str, proposed_by: str, now_ms: Callable[[], int], client: LogClient, moment: Moment
) -> PartitionResult:
    """Compact a partition. If its owner trims it meanwhile, read it again from its new start.

    Raises:
        RetryableError, UsageError: the job cannot continue. A proposal that was being written may be there.
    """
    partition = moment.partition
    for _ in range(_ATTEMPTS):
        try:
            return _compacted(app_id, proposed_by, now_ms, client, moment)
        except SnapshotSuperseded as error:
            return _without(partition, Outcome.SUPERSEDED, error)
        except UsageError:
            raise
        except SnapreplayError as error:
            before, moment = moment, moment_of(client, app_id, partition)
            if starts_of(moment) == starts_of(before):
                if isinstance(error, RetryableError):
                    raise
                return _without(partition, Outcome.NOT_POSSIBLE, error)
    trimmed = NotCompactable(f"partition {partition} was trimmed {_ATTEMPTS} times while it was read")
    return _without(partition, Outcome.NOT_POSSIBLE, trimmed)


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
        raise NotCompactable(f"the topics of {app_id!r} were created again: their ids were {dict(ids)}, they are {now}")
    increment, offset = written.state.found.increment, written.state.found.offset
    for topic, topic_id in ids.items():
        recorded = increment.topic_ids.get(topic, topic_id)
        if recorded != topic_id:
            raise NotCompactable(
                f"{topic} was created again: its id is {topic_id}, but batch {increment.batch} recorded {recorded}"
            )
    moment = moment_of(client, app_id, written.partition)
    logs = PartitionLogs(client, app_id, written.partition)
    if written.chunks and written.chunks[0].offset < moment.snapshots_start:
        raise SnapshotSuperseded(
            f"the owner has trimmed the snapshots topic to offset {moment.snapshots_start}, above the first chunk"
            f" at {written.chunks[0].offset}: it has newer snapshots"
        )
    check_still_wanted(written.state.found, last_batch(moment, logs, At()))
    if moment.log_start <= offset < moment.log_end:
        for records in logs.increments(offset, offset + 1):
            entry = judge(records[0]).entry
            if isinstance(entry, Increment):
                return Found(records[0].offset, entry)
    raise NotCompactable(f"offset {offset} of the increments topic holds no increment any more")


def _written(app_id: str, client: LogClient, moment: Moment) -> Written | None:
    """Fold the last batch's state and write its chunks; None: there is nothing to do."""
    logs = PartitionLogs(client, app_id, moment.partition)
    state = folded(app_id, moment, logs)
    if state is None:
        return None
    snapshot_id, refs = uuid.uuid4().hex, list[ChunkRef]()
    topic, headers = names.snapshots_topic(app_id), headers_for(RecordKind.CHUNK, snapshot_id)
    for value in chunk_records(snapshot_id, state.cursor, RECORD_BYTES_MAX):
        offset = client.append(topic, moment.partition, value, headers)
        if refs and offset <= refs[-1].offset:  # a log only grows
            raise NotCompactable(
                f"{topic} was created again: a chunk appended after offset {refs[-1].offset} lies at {offset}"
            )
        refs.append(ChunkRef(offset, len(refs), len(value), crc32(value)))
    digest = _read_back(logs, refs, snapshot_id, state.shard_count)
    return Written(moment.partition, state, snapshot_id, refs, digest)


def _read_back(logs: PartitionLogs, refs: Sequence[ChunkRef], snapshot_id: str, shard_count: int) -> Digest:
    """Return the digest of what the topic holds at the offsets of the chunks, every entry hashed.

    Raises:
        DamagedError: a chunk is missing, or is not what was written.
    """
    total, left = EMPTY, {ref.offset: ref for ref in refs}
    for records in logs.snapshots(refs[0].offset, refs[-1].offset + 1) if refs else ():
        for record in records:
            ref = left.pop(record.offset, None)
            if ref is not None:
                body = open_chunk(record.value or b"", ref, snapshot_id)
                store, digest = all_of(reading_back(body, ref, snapshot_id, shard_count))
                total = total.plus(digest.in_store(store))
    if left:
        raise DamagedError(f"{counted(len(left), 'chunk')} of snapshot {snapshot_id} cannot be read back")
    return total
