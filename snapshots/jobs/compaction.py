"""The compaction: the newest snapshot of a partition and the changes since become a new one, proposed to the owner.

Chunks are written by the tasks, each attempt under an id of its own. They mean nothing until the manifest, which is
written last, after everything was looked at once more. A job that dies leaves chunks that nobody reads.

Each task reads back what it has written. Without Spark in it: what runs the tasks is given.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar
from zlib import crc32

import msgspec

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, UsageError
from snapreplay.snapshots.format.chunks import open_chunk, reading_back
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, encode, headers_for, headers_of
from snapreplay.snapshots.format.records import ChunkRef, Increment, Manifest
from snapreplay.snapshots.jobs.fixed_logs import (
    LogClient,
    LogReader,
    OpenClient,
    PartitionLogs,
    freeze,
    moment_of,
    starts_of,
)
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.compaction import (
    ChangedMeanwhile,
    SnapshotSuperseded,
    Written,
    check_still_wanted,
    chunk_records,
    folded,
    proposal,
    target_of,
)
from snapreplay.snapshots.proof.records import Moment, judge
from snapreplay.snapshots.proof.state import At, last_batch
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.steps import all_of


class Outcome(StrEnum):
    """The outcome for a partition."""

    PROPOSED = "proposed"
    ADOPTED = "adopted"
    WAITING = "waiting"  # proposed; the owner has not answered within the time given
    SUPERSEDED = "superseded"  # a newer snapshot exists
    NOTHING_TO_DO = "nothing to do"
    NOT_POSSIBLE = "not possible"


FINE = {Outcome.PROPOSED, Outcome.ADOPTED, Outcome.SUPERSEDED, Outcome.NOTHING_TO_DO}
"""Nothing is left to do for anybody."""


class PartitionResult(msgspec.Struct, frozen=True):
    """The result for a partition.

    Attributes:
        batch, increment_offset: of which the proposed snapshot is; -1 without one.
        manifest_offset: of the proposal in the snapshots topic; -1 if none was written.
        batches: since the snapshot (`base`, None: the genesis) that it was made from.
        bridged: offsets of increments on the way that cannot be read. The digest of a later batch shows that nothing is
            missing.
        reason: why there is no proposal, or why it was not adopted.
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
        return 0 if all(each.outcome in FINE for each in self.partitions) else 1


T = TypeVar("T")

_ATTEMPTS = 3


class ProposalInDoubt(RetryableError):
    """A manifest was sent, and no broker has answered."""


class Attempt(msgspec.Struct, frozen=True):
    """The work of a task: `written`, or a `result` that says why not."""

    partition: int
    written: Written | None = None
    result: PartitionResult | None = None


class ForEach(Protocol):
    """Runs the tasks."""

    def __call__(
        self,
        parts: Sequence[Moment],
        open_client: OpenClient,
        work: Callable[[LogClient, Moment], object],
        kind: type[T],
        /,
    ) -> list[T]:
        """Return what `work` gives for each part. May run a part more than once: only one of its values counts."""


class Compaction:
    """One run of a compaction."""

    def __init__(
        self, for_each: ForEach, open_client: OpenClient, app_id: str, proposed_by: str, now_ms: Callable[[], int]
    ) -> None:
        self._for_each = for_each
        self._open = open_client
        self._app_id = app_id
        self._proposed_by = proposed_by
        self._now_ms = now_ms

    def run(self) -> list[PartitionResult]:
        """Compact all partitions.

        Raises:
            TopicMissing: there is nothing to compact.
            SnapreplayError: brokers do not answer, a task could not run. Nothing is proposed.
        """
        with self._open() as client:
            moments = freeze(client, self._app_id)
            ids = client.topic_ids(self._topics)
        attempts = self._attempts(moments)
        written = [each.written for each in attempts if each.written is not None]
        results = [each.result for each in attempts if each.result is not None]
        with self._open() as client:
            results += self._proposals(client, written, ids)
        return sorted(results, key=lambda result: result.partition)

    def _proposals(
        self, client: LogClient, written: Sequence[Written], ids: Mapping[str, str]
    ) -> list[PartitionResult]:
        """Propose; if brokers stop answering on the way, what was proposed before is there: the report says so."""
        results: list[PartitionResult] = []
        for number, each in enumerate(written):
            try:
                results.append(self._proposed(client, each, ids))
            except RetryableError as error:
                proposed = any(result.outcome is Outcome.PROPOSED for result in results)
                if not proposed and not isinstance(error, ProposalInDoubt):
                    raise
                left = written[number + 1 :]
                results.append(_ended(each, Outcome.NOT_POSSIBLE, error))
                why = RetryableError(f"not tried, because brokers stopped answering: {error.message}")
                return [*results, *(_ended(one, Outcome.NOT_POSSIBLE, why) for one in left)]
        return results

    @property
    def _topics(self) -> tuple[str, str]:
        return names.increments_topic(self._app_id), names.snapshots_topic(self._app_id)

    def _attempts(self, moments: Sequence[Moment]) -> list[Attempt]:
        """Read a partition again from its new start if its owner trims it while it is read."""
        done: dict[int, Attempt] = {}
        work = partial(attempted, self._app_id)
        todo = list(moments)
        for _ in range(_ATTEMPTS):
            attempts = self._for_each(todo, self._open, work, Attempt)
            done |= {each.partition: each for each in attempts}
            results = ((moment, done[moment.partition].result) for moment in todo)
            failed = [moment for moment, result in results if result and result.outcome is Outcome.NOT_POSSIBLE]
            if not failed:
                break
            with self._open() as client:
                now = freeze(client, self._app_id)
            todo = [now[m.partition] for m in failed if starts_of(now[m.partition]) != starts_of(m)]
            if not todo:
                break
        return [done[number] for number in sorted(done)]

    def _proposed(self, client: LogClient, written: Written, ids: Mapping[str, str]) -> PartitionResult:
        try:
            manifest = self._checked(client, written, ids)
        except SnapshotSuperseded as error:
            return _ended(written, Outcome.SUPERSEDED, error)
        except (RetryableError, UsageError):
            raise
        except SnapreplayError as error:
            return _ended(written, Outcome.NOT_POSSIBLE, error)
        topic = names.snapshots_topic(self._app_id)
        try:
            offset = client.append(topic, written.partition, encode(manifest), headers_of(manifest))
        except RetryableError as error:
            raise ProposalInDoubt(
                f"the proposal of batch {manifest.batch}, snapshot {manifest.snapshot_id}, may have been written or"
                f" not: {error.message}"
            ) from error
        return msgspec.structs.replace(_result(written, Outcome.PROPOSED), manifest_offset=offset)

    def _checked(self, client: LogClient, written: Written, ids: Mapping[str, str]) -> Manifest:
        """Look at everything once more.

        Raises:
            SnapreplayError: no manifest may be written.
        """
        if (now := client.topic_ids(self._topics)) != ids:
            raise ChangedMeanwhile(
                f"the topics of {self._app_id!r} were created again: their ids were {dict(ids)}, they are {now}"
            )

        for topic, recorded in written.increment.topic_ids.items():
            if topic in self._topics and recorded != ids.get(topic, recorded):
                raise ChangedMeanwhile(
                    f"{topic} was created again: its id is {ids[topic]}, but batch {written.increment.batch} recorded"
                    f" {recorded}"
                )

        def look(moment: Moment, logs: PartitionLogs) -> Found:
            _check_kept(written, moment)
            check_still_wanted(written, last_batch(moment, logs, At()))
            return _increment_at(logs, moment, written.increment_offset)

        found = looked(client, self._app_id, written.partition, look)
        return proposal(written, found, self._proposed_by, self._now_ms())


def looked(client: LogReader, app_id: str, partition: int, look: Callable[[Moment, PartitionLogs], T]) -> T:
    """Return what `look` gives for this moment; for a later one, if the owner trims a topic meanwhile.

    Raises:
        ChangedMeanwhile: it has trimmed them again and again.
    """
    logs = PartitionLogs(client, app_id, partition)
    moment = moment_of(client, app_id, partition)
    for _ in range(_ATTEMPTS):
        try:
            return look(moment, logs)
        except RetryableError:
            before, moment = moment, moment_of(client, app_id, partition)
            if starts_of(moment) == starts_of(before):
                raise
    raise ChangedMeanwhile(f"partition {partition} was trimmed {_ATTEMPTS} times while it was read")


def _check_kept(written: Written, moment: Moment) -> None:
    first = written.first_chunk_offset
    if first is not None and first < moment.snapshots_start:
        raise SnapshotSuperseded(
            f"the owner has trimmed the snapshots topic to offset {moment.snapshots_start}, above the first chunk"
            f" at {first}: it has newer snapshots"
        )


def _increment_at(logs: PartitionLogs, moment: Moment, offset: int) -> Found:
    if moment.log_start <= offset < moment.log_end:
        for records in logs.increments(offset, offset + 1):
            entry = judge(records[0]).entry
            if isinstance(entry, Increment):
                return Found(records[0].offset, entry)
    raise ChangedMeanwhile(f"offset {offset} of the increments topic holds no increment any more")


def _ended(written: Written, outcome: Outcome, error: SnapreplayError) -> PartitionResult:
    return msgspec.structs.replace(_result(written, outcome), reason=error.message, hint=error.hint)


def _result(written: Written, outcome: Outcome) -> PartitionResult:
    increment = written.increment
    return PartitionResult(
        written.partition,
        outcome,
        batch=increment.batch,
        increment_offset=written.increment_offset,
        snapshot_id=written.snapshot_id,
        base=written.base,
        batches=written.batches,
        entries=written.digest.count,
        chunks=len(written.chunks),
        size_bytes=sum(ref.size_bytes for ref in written.chunks),
        bridged=written.bridged,
    )


def attempted(app_id: str, client: LogClient, moment: Moment) -> Attempt:
    """Make one attempt at a partition, in a task. Its chunks have an id that no other attempt has.

    Raises:
        RetryableError, UsageError: the job cannot go on.
    """
    try:
        written = _written(app_id, client, moment)
    except UsageError:
        raise
    except RetryableError as error:
        if starts_of(moment_of(client, app_id, moment.partition)) == starts_of(moment):  # nothing was trimmed
            raise
        return _failed(moment, error)
    except SnapreplayError as error:
        return _failed(moment, error)
    if written is None:
        return Attempt(moment.partition, result=PartitionResult(moment.partition, Outcome.NOTHING_TO_DO))
    return Attempt(moment.partition, written=written)


def _written(app_id: str, client: LogClient, moment: Moment) -> Written | None:
    logs = PartitionLogs(client, app_id, moment.partition)
    target = target_of(moment, logs)
    if target is None:
        return None
    state = folded(app_id, moment, logs, target)
    snapshot_id, refs = uuid.uuid4().hex, list[ChunkRef]()
    topic, headers = (names.snapshots_topic(app_id), headers_for(RecordKind.CHUNK, snapshot_id))
    for value in chunk_records(snapshot_id, state.cursor, RECORD_BYTES_MAX):
        offset = client.append(topic, moment.partition, value, headers)
        if refs and offset <= refs[-1].offset:  # a log only grows
            raise ChangedMeanwhile(
                f"{topic} was created again: a chunk appended after offset {refs[-1].offset} lies at {offset}"
            )
        refs.append(ChunkRef(offset, len(refs), len(value), crc32(value)))
    digest = _read_back(logs, refs, snapshot_id, state.shard_count)
    return Written(
        moment.partition,
        target.found.offset,
        target.found.increment,
        snapshot_id,
        refs,
        digest,
        state.shard_count,
        None if state.base is None else state.base.snapshot_id,
        state.batches,
        list(state.bridged),
    )


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


def _failed(moment: Moment, error: SnapreplayError) -> Attempt:
    result = PartitionResult(moment.partition, Outcome.NOT_POSSIBLE, reason=error.message, hint=error.hint)
    return Attempt(moment.partition, result=result)


# --------------------------------------------------------------------- the answers of the owners

_PAUSE_SECONDS = 1.0


def answered(
    open_client: OpenClient, app_id: str, results: Sequence[PartitionResult], wait_s: float
) -> list[PartitionResult]:
    """Wait until each proposal among `results` is adopted or superseded, up to `wait_s`; or until the log cannot be
    read any more."""
    proposed = [each for each in results if each.outcome is Outcome.PROPOSED]
    if wait_s <= 0 or not proposed:
        return list(results)
    answers = {each.partition: each for each in results}
    deadline = time.monotonic() + wait_s
    with open_client() as client:
        while True:
            for number, each in enumerate(proposed):
                try:
                    answers[each.partition] = _answer(client, app_id, each)
                except SnapreplayError as error:
                    return list((answers | _unanswered(proposed[number:], error)).values())
            proposed = [each for each in proposed if answers[each.partition].outcome is Outcome.WAITING]
            if not proposed or time.monotonic() >= deadline:
                return list(answers.values())
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))


def _unanswered(proposed: Sequence[PartitionResult], error: SnapreplayError) -> dict[int, PartitionResult]:
    """Let the proposals wait: they stay, whoever could not be asked about them."""
    reason = f"the log could not be asked whether it was adopted: {error.message}"
    return {each.partition: msgspec.structs.replace(each, outcome=Outcome.WAITING, reason=reason) for each in proposed}


def _answer(client: LogClient, app_id: str, proposed: PartitionResult) -> PartitionResult:
    last = looked(client, app_id, proposed.partition, lambda at, logs: last_batch(at, logs, At()))
    pointers = last.increment.pointers if last is not None else []
    if any(pointer.snapshot_id == proposed.snapshot_id for pointer in pointers):
        return msgspec.structs.replace(proposed, outcome=Outcome.ADOPTED)
    for pointer in pointers[:1]:
        if pointer.batch >= proposed.batch:
            return msgspec.structs.replace(
                proposed,
                outcome=Outcome.SUPERSEDED,
                reason=f"the owner points to snapshot {pointer.snapshot_id} of batch {pointer.batch} instead",
            )
    return msgspec.structs.replace(
        proposed,
        outcome=Outcome.WAITING,
        reason="no increment points to it yet: an owner looks about once a minute, unless `snapshot.by` is owner, and"
        " shows the reason if it rejects it (`rejected_proposals` of the partition)",
    )
