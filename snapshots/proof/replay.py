"""Proof by replay: the handlers run again over the recorded ranges of the input. Pure but for what the readers do.

A segment lies between two snapshots, so segments are proved side by side. Of each batch the state's digest and the
fingerprint of its outputs must be the recorded ones. The first difference is narrowed to a key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.batch import Applied
from snapreplay.app.fold import Fold
from snapreplay.errors import (
    DamagedError,
    RecordError,
    SnapreplayError,
    StopError,
    UnknownFormatError,
)
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import is_decided
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.entries import chunks_of, is_there, manifest_of
from snapreplay.snapshots.proof.inputs import Inputs, InputUnavailable, ReadInput
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.moment import Logs, Moment
from snapreplay.snapshots.proof.narrowing import narrowed, narrowed_at_snapshot
from snapreplay.snapshots.proof.proven import Proof
from snapreplay.snapshots.proof.records import (
    CHANGES,
    CLAIM,
    INCREMENT,
    Condition,
    Judged,
    judge_increments,
)
from snapreplay.snapshots.proof.report import Violation
from snapreplay.state.contract import Store
from snapreplay.state.digest import Digest
from snapreplay.state.slices import slices_of
from snapreplay.state.steps import all_of


class Segment(msgspec.Struct, frozen=True):
    """Batches after a snapshot, up to and with the one at `end_offset`.

    Attributes:
        base: None for the genesis.
        next_snapshot: of the state after the last batch; None where there is none.
        positions: of the inputs after the last batch of the log; no record from there on is read.
    """

    partition: int
    base: Pointer | None
    next_snapshot: Pointer | None
    log_start: int
    end_offset: int
    positions: dict[str, int]


class Cause(StrEnum):
    """Why a replay differs."""

    CODE_CHANGED = "code changed"
    NOT_DETERMINISTIC = "not deterministic"
    UNEXPLAINED = "damage, or an influence from outside"


class SegmentReport(msgspec.Struct, frozen=True):
    """What a replay showed. `finding` is the first difference; `not_proven` batches lie behind the last digest.

    Attributes:
        proven: the last batch with a digest, if all before it was replayed without a difference.
    """

    batches: int
    records: int
    not_proven: int = 0
    without_input: bool = False
    finding: Violation | None = None
    proven: Proof | None = None


class _Difference(Exception):
    """The first one. `fingerprint`: what was computed, to be compared with a second run. `has_key`: `says` names a key,
    or none can be found by going on."""

    def __init__(
        self, found: Found, says: str, fingerprint: object = None, *, has_key: bool = False
    ) -> None:
        super().__init__(says)
        self.found = found
        self.says = says
        self.has_key = has_key
        self.fingerprint = (found.offset, says, fingerprint)


class ReplayDiffers(StopError):
    """The app's handlers lead to another state, or to other outputs, than was recorded."""


def segments(moment: Moment, last: Found) -> list[Segment]:
    """From the oldest snapshot that is still there, or from the genesis, to the last batch."""
    increment = last.increment
    starts: list[Pointer | None] = [
        pointer for pointer in reversed(increment.pointers) if is_there(pointer, moment)
    ]
    if moment.log_start == 0 and not is_decided(increment):
        starts.insert(0, None)
    made = []
    for base, following in zip_longest(starts, starts[1:]):
        begin = moment.log_start if base is None else base.increment_offset + 1
        end = last.offset if following is None else following.increment_offset
        made.append(Segment(moment.partition, base, following, begin, end, increment.positions))
    return made


def prove(app: App[Any], segment: Segment, logs: Logs, read_input: ReadInput) -> SegmentReport:
    """Replay a segment, and once more up to a difference: to see whether the same code gives the same twice.

    Damage is a finding. An input that is not there any more is none; one that cannot be read now is an error.
    """
    replay = _Replay(app, segment, logs, read_input)
    try:
        replay.run()
    except _Difference as difference:
        found, fingerprint = difference.found, difference.fingerprint
        says = difference.says if difference.has_key else replay.narrowing(difference.says)
    except InputUnavailable:
        return SegmentReport(replay.batches, replay.records, without_input=True)
    except (DamagedError, UnknownFormatError) as error:
        finding = _finding(app, segment, replay.at_offset, f"cannot be replayed: {error.message}")
        return SegmentReport(replay.batches, replay.records, finding=finding)
    else:
        return SegmentReport(
            replay.batches,
            replay.records,
            replay.not_proven,
            proven=_proven(app, replay.compared),
        )
    batches, records = replay.batches, replay.records
    del replay  # else both states would be in memory at once
    cause = Cause.UNEXPLAINED
    if _fingerprint(_Replay(app, segment, logs, read_input)) != fingerprint:
        cause = Cause.NOT_DETERMINISTIC
    elif found.increment.origin.app_version != app.version:
        cause = Cause.CODE_CHANGED
    says = f"batch {found.increment.batch} replays differently ({cause}): {says}"
    return SegmentReport(batches, records, finding=_finding(app, segment, found.offset, says))


def replayed(app: App[Any], segment: Segment, logs: Logs, read_input: ReadInput) -> Store:
    """The state after a segment; what its batches recorded was compared on the way.

    Raises:
        DamagedError, UnknownFormatError: the log or the input is not what was processed.
        ReplayDiffers: the handlers make something else of the input than was recorded.
    """
    replay = _Replay(app, segment, logs, read_input)
    try:
        replay.run()
    except _Difference as difference:
        raise ReplayDiffers(
            f"batch {difference.found.increment.batch} replays differently: {difference.says}",
            hint="`snapreplay audit APP --level replay` tells changed code from code that is not deterministic",
        ) from difference
    return replay.store


def _proven(app: App[Any], compared: Found | None) -> Proof | None:
    if compared is None:
        return None
    return msgspec.structs.replace(Proof.of(Level.REPLAY, compared), app_version=app.version)


def _finding(app: App[Any], segment: Segment, offset: int, says: str) -> Violation:
    topic = names.increments_topic(app.app_id)
    return Violation("replay", topic, segment.partition, offset, says)


def _fingerprint(replay: _Replay) -> object:
    try:
        replay.run()
    except _Difference as difference:
        return difference.fingerprint
    except (DamagedError, UnknownFormatError):
        return None
    return None


class _Replay:
    def __init__(self, app: App[Any], segment: Segment, logs: Logs, read_input: ReadInput) -> None:
        self.batches = 0
        self.records = 0
        self.not_proven = 0
        self.at_offset = segment.log_start
        self.compared: Found | None = None
        self._segment = segment
        self._logs = logs
        self._store: Store = app.new_store()
        # What was committed was accepted, whatever the topics take today.
        limits = {topic.name: sys.maxsize for topic in app.outputs}
        self._fold = Fold(app, self._store, segment.partition, output_limits=limits)
        self._positions: Mapping[str, int] = {}
        self._inputs = Inputs(read_input, segment.positions)
        self._left = self._batches()
        self._compares = True

    @property
    def store(self) -> Store:
        """After the last batch that was replayed."""
        return self._store

    def run(self) -> None:
        """
        Raises:
            _Difference: the first one.
        """
        segment = self._segment
        if segment.base is not None:
            self._load(segment.base)
        last: Found | None = None
        for last, changes in self._left:
            self._batch(last, changes)
        if last is not None and segment.next_snapshot is not None:
            self._compare_snapshot(last, segment.next_snapshot)

    def narrowing(self, says: str) -> str:
        """After a difference without a key: what it says, and in which keys the next snapshot differs from a replay
        that goes on up to there. Nothing is compared on the way."""
        pointer = self._segment.next_snapshot
        if pointer is None:
            return says
        self._compares = False
        try:
            for found, changes in self._left:
                self._batch(found, changes)
            manifest = manifest_of(self._logs, pointer)
            chunks = chunks_of(self._logs, pointer.manifest_offset, manifest)
            recorded = ((each.store, one) for each in chunks for one in each.slices)
            keys = narrowed_at_snapshot(manifest.batch, recorded, slices_of(self._store))
        except (_Difference, SnapreplayError):
            return says  # what was found first is the finding
        return f"{says}; {keys}"

    def _batches(self) -> Iterator[tuple[Found, Sequence[bytes]]]:
        """Each batch with its changes."""
        changes: list[bytes] = []
        for record in self._entries():
            self.at_offset = record.offset
            if record.kind == CHANGES:
                changes.append(record.value)
            elif record.kind == CLAIM:
                changes = []
            elif record.kind == INCREMENT:
                if not isinstance(record.entry, Increment):
                    raise DamagedError("the increment cannot be read")
                yield Found(record.offset, record.entry), changes
                changes = []

    def _entries(self) -> Iterator[Judged]:
        segment = self._segment
        for records in self._logs.increments(segment.log_start, segment.end_offset + 1):
            yield from (
                each
                for each in map(judge_increments, records)
                if each.condition is not Condition.FOREIGN
            )

    def _load(self, pointer: Pointer) -> None:
        manifest = manifest_of(self._logs, pointer)
        self._store.clear(manifest.shard_count)
        for chunk in chunks_of(self._logs, pointer.manifest_offset, manifest):
            self._store.load(chunk.slices, chunk.store)
        self._store.loaded()
        self._store.stream_time_ms = manifest.stream_time_ms

    def _batch(self, found: Found, changes: Sequence[bytes]) -> None:
        increment = found.increment
        applied: Applied | None = None
        if increment.cleared:
            self._store.apply_changes({}, increment.cleared)
        if increment.begins_anew:
            self._load(increment.pointers[0])
        elif not increment.is_empty:
            applied = self._apply(found)
            self.not_proven += 1
        self._positions = increment.positions
        self._store.stream_time_ms = increment.stream_time_ms
        if self._compares:
            self._compare_batch(found, changes, applied)
        self.batches += 1

    def _compare_batch(
        self, found: Found, changes: Sequence[bytes], applied: Applied | None
    ) -> None:
        increment = found.increment
        if applied is not None and increment.outputs_xxh64 != applied.outputs_xxh64:
            raise self._outputs_differ(found, applied, changes)
        if increment.digest is not None:
            has_key = increment.changes is not None and applied is not None
            says = narrowed(increment, changes, applied)
            self._compare(found, increment.digest, says, has_key=has_key)

    def _compare(
        self, found: Found, recorded: Digest, says: Callable[[], str], *, has_key: bool
    ) -> None:
        digest = all_of(self._store.digesting())
        if digest != recorded:
            raise _Difference(found, f"another state; {says()}", digest, has_key=has_key)
        self.not_proven = 0
        self.compared = found

    def _compare_snapshot(self, last: Found, pointer: Pointer) -> None:
        manifest = manifest_of(self._logs, pointer)
        says = f"snapshot {pointer.snapshot_id} of it has other entries"
        self._compare(last, manifest.entries_digest, lambda: says, has_key=False)

    def _outputs_differ(
        self, found: Found, applied: Applied, changes: Sequence[bytes]
    ) -> _Difference:
        recorded, replayed = found.increment.outputs_xxh64, applied.outputs_xxh64
        topics = {
            t for t in recorded.keys() | replayed.keys() if recorded.get(t) != replayed.get(t)
        }
        narrowing = narrowed(found.increment, changes, applied)()
        says = f"other outputs to {', '.join(sorted(topics))}; {narrowing}"
        return _Difference(found, says, replayed, has_key=found.increment.changes is not None)

    def _apply(self, found: Found) -> Applied:
        increment = found.increment
        records = [r for part in increment.ranges for r in self._inputs.take(part)]
        self.records += len(records)
        started = {part.topic: part.start_offset for part in reversed(increment.ranges)}
        positions = {**increment.genesis.start_offsets, **self._positions, **started}
        try:
            applied = all_of(self._fold.replaying(positions, increment.portion(records)))
            if applied.failure is not None:
                raise applied.failure
        except RecordError as error:
            raise _Difference(found, f"a handler refuses: {error.message}", has_key=True) from error
        self._store.merge()
        return applied
