"""Proof by replay: the handlers run again over the recorded ranges of the input. Pure but for what the readers do.

A segment lies between two snapshots, so segments are proved side by side. Of each batch the state's digest and the
fingerprint of its outputs must be the recorded ones. The first difference is narrowed to a key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.batch import Applied
from snapreplay.app.ranges import OutOfOrder
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RecordError, RecordsGone, SnapreplayError, UnknownFormatError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.log.batches import Batches, Step
from snapreplay.snapshots.log.by_replay import InputDiffers, InputRetired, Replay
from snapreplay.snapshots.log.reading import Source, Waiting
from snapreplay.snapshots.plan import is_decided
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.records import Logs, Moment, Slices
from snapreplay.snapshots.proof.report import Violation
from snapreplay.snapshots.proof.state import is_there, load, manifest_of
from snapreplay.state.composite import Store
from snapreplay.state.contract import StateChanges
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.keys import stored_key
from snapreplay.state.values import bare


class Segment(msgspec.Struct, frozen=True):
    """Batches after a snapshot, up to and with the one at `end_offset`.

    Attributes:
        base: None for the genesis.
        positions: of the inputs after the last batch of the log; no record from there on is read.
        retired: inputs and the ids of their topics of then. A topic of this name that is there now is another one.
    """

    partition: int
    base: Pointer | None
    log_start: int
    end_offset: int
    positions: dict[str, int]
    retired: tuple[tuple[str, str], ...] = ()


class SegmentReport(msgspec.Struct, frozen=True):
    """The result of a replay. `finding` is the first difference."""

    batches: int
    records: int
    without_input: bool = False
    finding: Violation | None = None


class _Difference(Exception):
    """The first one."""

    def __init__(self, found: Step, says: str) -> None:
        super().__init__(says)
        self.found, self.says = found, says


class InputUnavailable(DamagedError):
    """The records of a range can no longer be read."""


_NOT_REPLAYED = (DamagedError, UnknownFormatError, InputDiffers, OutOfOrder)


def segments(moment: Moment, last: Found, retired: Collection[tuple[str, str]] = ()) -> list[Segment]:
    """Return the segments from the oldest snapshot that is still there, or from the genesis, to the last batch.

    `retired`: as far as known, inputs that were retired, with the ids of their topics. Those that were added again are
    inputs.
    """
    increment = last.increment
    former = tuple(sorted(set(retired) - increment.topic_ids.items()))
    starts: list[Pointer | None] = [pointer for pointer in reversed(increment.pointers) if is_there(pointer, moment)]
    if moment.log_start == 0 and not is_decided(increment):
        starts.insert(0, None)
    made = []
    for base, following in zip_longest(starts, starts[1:]):
        begin = moment.log_start if base is None else base.increment_offset + 1
        end = last.offset if following is None else following.increment_offset
        made.append(Segment(moment.partition, base, begin, end, increment.positions, former))
    return made


def prove(app: App[Any], segment: Segment, logs: Logs) -> SegmentReport:
    """Replay a segment.

    Damage is a finding. An input that is not there any more is none; one that cannot be read now is an error.
    """
    replay = _Replay(app, segment, logs)
    try:
        replay.run()
    except _Difference as difference:
        origin = difference.found.increment.origin
        cause = (
            f"recorded by version {origin.app_version} of the code"
            if origin.app_version != app.version
            else "the code is not deterministic, or damage or an influence from outside such as PYTHONHASHSEED"
        )
        says = f"batch {difference.found.increment.batch} replays differently ({cause}): {difference.says}"
        finding = _finding(app, segment, difference.found.offset, says)
        return SegmentReport(replay.batches, replay.records, finding=finding)
    except (InputUnavailable, InputRetired):
        return SegmentReport(replay.batches, replay.records, without_input=True)
    except _NOT_REPLAYED as error:
        finding = _not_replayed(app, segment, replay.at_offset, error)
        return SegmentReport(replay.batches, replay.records, finding=finding)
    return SegmentReport(replay.batches, replay.records)


def _not_replayed(app: App[Any], segment: Segment, at_offset: int, error: SnapreplayError) -> Violation:
    """Report why it could not be replayed; `at_offset`: of the last increment that was read; the error may name a
    later one."""
    is_later = error.facts.get("topic") == names.increments_topic(app.app_id)
    offset = error.facts["offset"] if is_later else at_offset
    return _finding(app, segment, int(str(offset)), f"cannot be replayed: {error.message}")


def _finding(app: App[Any], segment: Segment, offset: int, says: str) -> Violation:
    topic = names.increments_topic(app.app_id)
    return Violation("replay", topic, segment.partition, offset, says)


def _read(logs: Logs, source: Source) -> Slices:
    try:
        yield from logs.input(*source)
    except RecordsGone as error:
        raise InputUnavailable(f"input {source.topic}: {error.message}") from error


class _Replay:
    def __init__(self, app: App[Any], segment: Segment, logs: Logs) -> None:
        self.batches = 0
        self.at_offset = segment.log_start
        self._segment = segment
        self._logs = logs
        self.store: Store = app.new_store()
        self._replay = Replay(app, self.store, segment.partition, {}, segment.positions)
        self._inputs = Waiting(partial(_read, logs))
        self._left = Batches().of(logs.increments(segment.log_start, segment.end_offset + 1))

    @property
    def records(self) -> int:
        """The number of records of the input that were read again."""
        return self._replay.record_count

    def run(self) -> None:
        """Replay the segment, or raise _Difference: the first one."""
        segment = self._segment
        if segment.base is not None:
            self._load(segment.base)
        for found in self._left:
            self._batch(found)

    def _load(self, pointer: Pointer) -> None:
        manifest = manifest_of(self._logs, pointer)
        load(self._logs, manifest, self.store)
        self._replay.positions = dict(manifest.positions)

    def _batch(self, found: Step) -> None:
        increment, self.at_offset = found.increment, found.offset
        if increment.begins_chain:
            self._load(increment.pointers[0])
        self._refuse_retired(found)
        if not self._replay.positions:
            self._replay.positions = dict(increment.genesis.start_offsets)
        try:
            applied = self._inputs.all_of(self._replay.batch(found))
        except RecordError as error:
            raise _Difference(found, f"a handler refuses: {error.message}") from error
        self._compare_batch(found, applied)
        self.batches += 1

    def _refuse_retired(self, found: Step) -> None:
        for part in found.increment.ranges:
            if (part.topic, found.increment.topic_ids.get(part.topic, "")) in self._segment.retired:
                raise InputRetired(
                    f"offsets {part.start_offset} to {part.end_offset} of {part.topic} were processed before this input"
                    " was retired; the topic of this name is another one",
                    topic=part.topic,
                )

    def _compare_batch(self, found: Step, applied: Applied | None) -> None:
        increment = found.increment
        if applied is not None and increment.outputs_xxh64 != applied.outputs_xxh64:
            raise self._outputs_differ(found, applied)
        if self.store.digest != increment.digest:
            raise _Difference(found, f"another state; {narrowed(increment, found.changes, applied)}")

    def _outputs_differ(self, found: Step, applied: Applied) -> _Difference:
        recorded, replayed = found.increment.outputs_xxh64, applied.outputs_xxh64
        topics = {t for t in recorded.keys() | replayed.keys() if recorded.get(t) != replayed.get(t)}
        narrowing = narrowed(found.increment, found.changes, applied)
        return _Difference(found, f"other outputs to {', '.join(sorted(topics))}; {narrowing}")


def narrowed(increment: Increment, changes: Sequence[bytes], applied: Applied | None) -> str:
    """Name the first key whose value is another one, by the recorded changes."""
    if increment.changes is None or applied is None:
        return "no changes were recorded to compare"
    recorded: _Values = {}
    for stores in check_changes(increment.changes, changes):
        recorded |= _by_place(stores)
    replayed = _by_place(applied.sealed.changes)
    places = [
        each for each in {**recorded, **replayed} if recorded.get(each, _UNTOUCHED) != replayed.get(each, _UNTOUCHED)
    ]
    if not places:
        return "by the same changes of the state"
    first = places[0]
    one, other = (values.get(first, _UNTOUCHED) for values in (recorded, replayed))
    return _differs(len(places), first, one, other)


_UNTOUCHED = b"\xc1"  # no MessagePack
_SHOWN_MAX = 200

_Place = tuple[str, bytes]
"""A store and a key in it."""
_Values = dict[_Place, bytes | None]


def _differs(count: int, first: _Place, recorded: bytes | None, replayed: bytes | None) -> str:
    """Say where two sides differ; None: deleted."""
    store, key = first
    of = "" if store == DEFAULT_STORE else f" of store {store}"
    one, other = ("deleted" if each is None else _shown(bare(each)) for each in (recorded, replayed))
    return f"the state differs in {counted(count, 'key')}, first {_shown(key)}{of}: recorded {one}, replayed {other}"


def _by_place(changes: StateChanges) -> _Values:
    return {(store, key): new for store, entries in changes.items() for key, new in entries.items()}


def _shown(stored: bytes) -> str:
    if stored == _UNTOUCHED:
        return "not touched"
    try:
        text = repr(stored_key(stored))
    except (ValueError, RecursionError):
        text = repr(stored)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
