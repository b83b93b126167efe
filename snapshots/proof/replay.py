"""Proof by replay: the handlers run again over the recorded ranges of the input. Pure but for what the readers do.

A segment lies between two snapshots, so segments are proved side by side. Of each batch the state's digest and the
fingerprint of its outputs must be the recorded ones. The first difference is narrowed to a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.fold import Applied, Fold
from snapreplay.app.input_ranges import without_skipped
from snapreplay.app.ranges import InputRange
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RecordError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.moment import Logs, Moment
from snapreplay.snapshots.proof.records import CHANGES, CLAIM, INCREMENT, Slices
from snapreplay.snapshots.proof.report import Violation
from snapreplay.snapshots.proof.state import chunks_of, manifest_of
from snapreplay.state.contract import Store
from snapreplay.state.steps import all_of
from snapreplay.state.store import store_of

ReadInput = Callable[[str, int, int], Slices]
"""(topic, start offset, end offset) → committed records of this partition of an input."""


class Segment(msgspec.Struct, frozen=True):
    """Batches after a snapshot, up to and with one at `end_offset`. `base` is None for the genesis.

    `positions`: of the inputs after the last batch; no record from there on is read.
    """

    partition: int
    base: Pointer | None
    log_start: int
    end_offset: int
    positions: dict[str, int]


class Cause(StrEnum):
    """Why a replay differs."""

    CODE_CHANGED = "code changed"
    NOT_DETERMINISTIC = "not deterministic"
    UNEXPLAINED = "damage, or an influence from outside"


class SegmentReport(msgspec.Struct, frozen=True):
    """What a replay showed. `finding` is the first difference."""

    batches: int
    records: int
    finding: Violation | None = None


class _Difference(Exception):
    """The first one; told apart from errors of the way there."""

    def __init__(self, found: Found, says: str) -> None:
        super().__init__(says)
        self.found = found
        self.says = says


def segments(moment: Moment, last: Found) -> list[Segment]:
    """From the oldest snapshot that is still there, or from the genesis, to the last batch."""
    pointers = [
        pointer
        for pointer in reversed(last.increment.pointers)
        if pointer.first_chunk_offset >= moment.snapshots_start
        and pointer.increment_offset + 1 >= moment.log_start
    ]
    starts: list[Pointer | None] = [*pointers]
    if moment.log_start == 0:
        starts.insert(0, None)
    ends = [pointer.increment_offset for pointer in starts[1:] if pointer is not None]
    return [
        Segment(
            moment.partition,
            base,
            moment.log_start if base is None else base.increment_offset + 1,
            end,
            last.increment.positions,
        )
        for base, end in zip(starts, [*ends, last.offset], strict=True)
    ]


def prove(app: App[Any], segment: Segment, logs: Logs, read_input: ReadInput) -> SegmentReport:
    """Replay a segment, and once more up to a difference: to see whether the same code gives the same twice.

    Raises:
        OffsetTrimmed: the input's records are gone.
        DamagedError: something on the way is not what was written.
    """
    first = _Replay(app, segment, logs, read_input)
    try:
        first.run()
    except _Difference as difference:
        second = _said(_Replay(app, segment, logs, read_input))
        cause = Cause.UNEXPLAINED
        if second != difference.says:
            cause = Cause.NOT_DETERMINISTIC
        elif difference.found.increment.origin.app_version != app.version:
            cause = Cause.CODE_CHANGED
        finding = Violation(
            "replay",
            names.increments_topic(app.app_id),
            segment.partition,
            difference.found.offset,
            f"batch {difference.found.increment.batch} replays differently ({cause}): {difference.says}",
        )
        return SegmentReport(first.batches, first.records, finding)
    return SegmentReport(first.batches, first.records)


def _said(replay: _Replay) -> str:
    try:
        replay.run()
    except _Difference as difference:
        return difference.says
    return ""


class _Replay:
    def __init__(self, app: App[Any], segment: Segment, logs: Logs, read_input: ReadInput) -> None:
        self.batches = 0
        self.records = 0
        self._segment = segment
        self._logs = logs
        self._store: Store = store_of(app.state())
        self._fold = Fold(app, self._store, segment.partition)
        self._positions: Mapping[str, int] = {}
        self._inputs = _Inputs(read_input, segment.positions)

    def run(self) -> None:
        """
        Raises:
            _Difference: the first one.
        """
        if self._segment.base is not None:
            self._load(self._segment.base)
        changes: list[bytes] = []
        for found, value in _entries(self._logs, self._segment):
            if value[5] == CHANGES:
                changes.append(value)
            elif value[5] == CLAIM:
                changes = []
            elif value[5] == INCREMENT:
                entry = decode(value)
                if isinstance(entry, Increment):
                    self._batch(Found(found, entry), changes)
                changes = []

    def _load(self, pointer: Pointer) -> None:
        manifest = manifest_of(self._logs, pointer)
        self._store.clear(manifest.shard_count)
        for chunk in chunks_of(self._logs, pointer.manifest_offset, manifest):
            self._store.load(chunk.slices)
        self._store.loaded()
        self._store.stream_time_ms = manifest.stream_time_ms

    def _batch(self, found: Found, changes: Sequence[bytes]) -> None:
        increment = found.increment
        if increment.begins_anew:
            self._load(increment.pointers[0])
        elif increment.ranges:
            self._apply(found, changes)
        self._positions = increment.positions
        self._store.stream_time_ms = increment.stream_time_ms
        self.batches += 1

    def _apply(self, found: Found, changes: Sequence[bytes]) -> None:
        increment = found.increment
        records = [r for part in increment.ranges for r in self._inputs.take(part)]
        self.records += len(records)
        started = {part.topic: part.start_offset for part in reversed(increment.ranges)}
        positions = {**increment.genesis.start_offsets, **self._positions, **started}
        applied = self._applied(found, positions, list(without_skipped(records, increment.skipped)))
        self._store.merge()
        if increment.outputs_xxh64 != applied.outputs_xxh64:
            topics = {
                topic
                for topic in increment.outputs_xxh64.keys() | applied.outputs_xxh64.keys()
                if increment.outputs_xxh64.get(topic) != applied.outputs_xxh64.get(topic)
            }
            says = f"other outputs to {', '.join(sorted(topics))}"
            raise _Difference(found, f"{says}; {_narrowed(increment, changes, applied)}")
        if increment.digest is not None:
            digest = all_of(self._store.digesting())
            if digest != increment.digest:
                raise _Difference(found, _narrowed(increment, changes, applied))

    def _applied(
        self, found: Found, positions: Mapping[str, int], records: list[InputRecord]
    ) -> Applied:
        try:
            self._fold.begin(positions)
            self._fold.feed(records)
            return self._fold.finish()
        except RecordError as error:
            self._fold.abandon()
            if not self._store.can_roll_back:
                raise _Difference(found, f"a handler refuses: {error.message}") from error
            applied = self._fold.isolate(positions, records)
            if applied.failure is not None:
                says = f"a handler refuses: {applied.failure.message}"
                raise _Difference(found, says) from error
            return applied


def _entries(logs: Logs, segment: Segment) -> Iterator[tuple[int, bytes]]:
    for records in logs.increments(segment.log_start, segment.end_offset + 1):
        for record in records:
            value = record.value or b""
            if len(value) > 5:
                yield record.offset, value


def _narrowed(increment: Increment, changes: Sequence[bytes], applied: Applied) -> str:
    """The first key whose value is another one, by the recorded changes."""
    if increment.changes is None:
        return "no changes were recorded to compare"
    recorded: dict[bytes, bytes | None] = {}
    for stores in check_changes(increment.changes, changes):
        for store in stores.values():
            recorded |= store
    replayed = applied.sealed.changes
    keys = [k for k in {**recorded, **replayed} if _at(recorded, k) != _at(replayed, k)]
    if not keys:
        return "by the same changes of the state"
    key = keys[0]
    return (
        f"the state differs in {counted(len(keys), 'key')}, first {_shown(key)}: recorded {_shown(_at(recorded, key))},"
        f" replayed {_shown(_at(replayed, key))}"
    )


_UNTOUCHED = b"\xc1"  # no MessagePack


def _at(changes: Mapping[bytes, bytes | None], key: bytes) -> bytes | None:
    return changes.get(key, _UNTOUCHED)


def _shown(stored: bytes | None) -> str:
    if stored is None:
        return "deleted"
    if stored == _UNTOUCHED:
        return "not touched"
    try:
        return repr(msgspec.msgpack.decode(stored))
    except (ValueError, RecursionError):
        return repr(stored)


class InputGone(DamagedError):
    """A range holds more or fewer records than when it was processed."""


class _Inputs:
    """Each input partition is read forward once."""

    def __init__(self, read: ReadInput, ends: Mapping[str, int]) -> None:
        self._read = read
        self._ends = ends
        self._cursors: dict[str, Iterator[InputRecord]] = {}
        self._ahead: dict[str, InputRecord] = {}

    def take(self, part: InputRange) -> list[InputRecord]:
        """The records of this range; ranges of a topic come in rising order.

        Raises:
            InputGone: more or fewer than when it was processed.
        """
        topic = part.topic
        if topic not in self._cursors:
            slices = self._read(topic, part.start_offset, self._ends[topic])
            self._cursors[topic] = (record for records in slices for record in records)
        taken: list[InputRecord] = []
        record = self._ahead.pop(topic, None) or next(self._cursors[topic], None)
        while record is not None and record.offset < part.end_offset:
            taken.append(record)
            record = next(self._cursors[topic], None)
        if record is not None:
            self._ahead[topic] = record
        if len(taken) != part.record_count:
            raise InputGone(
                f"input {topic} holds {counted(len(taken), 'record')} in offsets {part.start_offset} to"
                f" {part.end_offset}; when it was processed it held {part.record_count}"
            )
        return taken
