"""A compaction's work on one partition, in a task: fold, prove, write the chunks. Without Spark in it."""

from __future__ import annotations

import uuid
from typing import Any
from zlib import crc32

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.load import checked_app
from snapreplay.errors import RetryableError, SnapreplayError, StopError, UsageError
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, headers_for
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.snapshots.format.seal import OFF
from snapreplay.snapshots.jobs.compaction_report import Outcome, PartitionResult
from snapreplay.snapshots.jobs.fixed_logs import LogClient, PartitionLogs, moment_of, starts_of
from snapreplay.snapshots.proof.compaction import (
    ChangedMeanwhile,
    Written,
    chunk_records,
    folded,
    shard_count_of,
    target_of,
)
from snapreplay.snapshots.proof.moment import Moment
from snapreplay.snapshots.proof.records import Slices


class Attempt(msgspec.Struct, frozen=True):
    """The work of a task: `written`, or a `result` that says why not."""

    partition: int
    written: Written | None = None
    result: PartitionResult | None = None


def attempted(
    app_id: str, app: str | None, version: str, client: LogClient, moment: Moment
) -> Attempt:
    """Make one attempt at a partition, in a task. Its chunks have an id that no other attempt has.

    Raises:
        RetryableError, UsageError: the job cannot go on.
    """
    try:
        written = _written(app_id, app, version, client, moment)
    except UsageError:
        raise
    except RetryableError as error:
        if not _is_trimmed(client, app_id, moment):
            raise
        return _failed(moment, error)
    except SnapreplayError as error:
        return _failed(moment, error)
    if written is None:
        return Attempt(
            moment.partition, result=PartitionResult(moment.partition, Outcome.NOTHING_TO_DO)
        )
    return Attempt(moment.partition, written=written)


def _written(
    app_id: str, app: str | None, version: str, client: LogClient, moment: Moment
) -> Written | None:
    logs = PartitionLogs(client, app_id, moment.partition)
    target = target_of(moment, logs)
    if target is None:
        return None

    def read_input(topic: str, start_offset: int, end_offset: int) -> Slices:
        return client.read(topic, moment.partition, start_offset, end_offset, committed=True)

    loaded = None if app is None else _same_app(app, app_id, version)
    state = folded(app_id, moment, logs, target, loaded, read_input)
    snapshot_id, refs = uuid.uuid4().hex, list[ChunkRef]()
    topic, headers = (names.snapshots_topic(app_id), headers_for(RecordKind.CHUNK, snapshot_id))
    shard_count = shard_count_of(state.images)
    for value in chunk_records(snapshot_id, state.images, RECORD_BYTES_MAX):
        offset = client.append(topic, moment.partition, value, headers)
        if refs and offset <= refs[-1].offset:  # a log only grows
            raise ChangedMeanwhile(
                f"{topic} was created again: a chunk appended after offset {refs[-1].offset} lies at {offset}"
            )
        sha256 = (client.seals or OFF).sha256([value])
        refs.append(ChunkRef(offset, len(refs), len(value), crc32(value), sha256))
    return Written(
        moment.partition,
        target.found.offset,
        target.found.increment,
        snapshot_id,
        refs,
        shard_count,
        None if state.base is None else state.base.snapshot_id,
        state.batches,
        state.by_replay,
        list(state.bridged),
    )


def _same_app(app: str, app_id: str, version: str) -> App[Any]:
    loaded = checked_app(app, app_id)
    if loaded.version != version:
        raise StopError(
            f"an executor has imported version {loaded.version} of the app, but the job was started with {version}"
        )
    return loaded


def _is_trimmed(client: LogClient, app_id: str, before: Moment) -> bool:
    return starts_of(moment_of(client, app_id, before.partition)) != starts_of(before)


def _failed(moment: Moment, error: SnapreplayError) -> Attempt:
    result = PartitionResult(
        moment.partition, Outcome.NOT_POSSIBLE, reason=error.message, hint=error.hint
    )
    return Attempt(moment.partition, result=result)
