"""The fold: how records become state and outputs, live, in replay, in tests and on Spark executors. Pure.

    begin → feed … feed → finish      the normal way (or staging, later sealing); RecordError leads to
            abandon, isolating        the same records in parts: only the failing one is dropped

Where the state has timers or entries that expire, what is due comes before the record that moves stream time, see
`turns`. Then `applying` continues while the batch has room; `replaying` does what a batch did.

The effect of a batch (state, outputs, skipped records) is that of its records as batches of one. Where the two could
differ (one object under two keys, in two records), the batch fails and `isolating` decides. One case passes, because
finding it would cost an encoding per record: a value that cannot be written but is repaired, overwritten or deleted by
a later record of the same batch. A replay agrees; `snapreplay.testing.check` finds such a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import attrgetter, length_hint
from typing import Any

from snapreplay import engine
from snapreplay.app.app import App
from snapreplay.app.batch import Applied, ErrorPolicy, Feeding, Portion, Tried, halving
from snapreplay.app.call import Calling, sourced
from snapreplay.app.codecs import raw, utf8
from snapreplay.app.failure import dead_letter, far_ahead, passes, record_error, returned_value, timer_dead_letter
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, Out
from snapreplay.app.ranges import InputRanges, offsets_of, out_of_order
from snapreplay.app.record import Headers, InputRecord, Output, Record, carrying, id_of
from snapreplay.app.timer import Timer
from snapreplay.app.topic import Topic
from snapreplay.app.turns import NO_PORTION, OnFailure, Turns
from snapreplay.errors import RecordError
from snapreplay.state.composite import Store
from snapreplay.state.gate import Gate
from snapreplay.state.mapstore import MapStore
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.stores import maps_of
from snapreplay.times import is_far_ahead

SLICE_RECORDS = 256
PREFETCH_MIN = 16
"""Minimum number of records in a run for a prefetch of their entries. It ends for a map in which fewer than half are
found."""
_HEADERS = attrgetter("headers")


class Fold:
    """Applies batches of one partition to one store. `store.stream_time_ms` lasts across batches.

    Attributes:
        slice_records: the most records that one step of `applying` applies; may be changed between two steps.
        stepped: how many records the last step of `applying` applied; its reader sets it to 0, because a step that
            fires a timer or skips a record leaves it alone.
    """

    def __init__(
        self,
        app: App[Any],
        store: Store,
        partition: int,
        *,
        output_limits: Mapping[str, int] | None = None,
        policy: ErrorPolicy = ErrorPolicy.FAIL,
        carries: bool = False,
        clock: Callable[[], float] = float,
    ) -> None:
        """Take `output_limits`: topic name → max.message.bytes, else Kafka's default. `carries`: outputs carry the
        trace context of their record. `clock`: seconds, for `Applied.handled`."""
        self.partition = partition
        self._app = app
        self._store, self._clock = store, store.clock
        self._policy = policy
        self._limits = output_limits or {}
        self._gate = Gate()
        self._gate.close()
        for each in maps_of(store.view).values():
            each.__snapreplay_store__().gate = self._gate
        self._out = Out(app.outputs, self._limits, self._gate)
        if store.calls is not None:
            self._out.calls = Calling(app, partition, store.calls)
        self._ways = _Ways(app)
        self._turns: Turns | None = None
        if store.timetable is not None:
            self._turns = Turns(app, store, store.timetable, partition, self._out, self._gate)
        self.slice_records = SLICE_RECORDS
        self.stepped = 0
        self._coverage = InputRanges({})
        self._far_moves_time = False
        self._recorded_ms: int | None = None
        self._began_at_ms = -1
        self._prefetched: list[MapStore[Any, Any]] = []
        self._outputs_xxh64: dict[str, int] = {}
        self._carries = carries
        self._seconds = clock

    def learn_limits(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._out.learn_limits(limits)

    def begin(self, positions: Mapping[str, int], portion: Portion | None = None) -> None:
        """Start a batch. `positions`: next offset of each input."""
        self._store.begin()
        self._start(positions, portion)

    def feed(self, records: Sequence[InputRecord]) -> None:
        """Apply records in this order; may be called several times per batch. Offsets must rise within each input.

        Raises:
            RecordError: `record_id` names the record; the batch must be abandoned.
            OutOfOrder: a record below its input's position.
        """
        all_of(self.applying(Portion(records)))

    def applying(self, portion: Portion) -> Steps[None]:
        """Apply what a batch that was begun is to apply: up to its end, or until the batch is full.

        Raises:
            RecordError: as `feed`, or of a timer: `timer_id` names it.
            OutOfOrder: as `feed`.
        """
        skipped, turns, clock = offsets_of(portion.skipped), self._turns, self._clock
        for is_skipped, run in self._runs(portion.records, skipped):
            at = 0
            while at < len(run):
                record = run[at]
                if turns is not None and max(record.timestamp, clock.stream_time_ms) >= clock.quiet_before_ms:
                    ahead = self._ahead(record, portion, is_skipped=is_skipped)
                    if ahead is not None:
                        raise ahead
                    if not (is_skipped and self._stays(record)) and not turns.is_quiet(record.timestamp):
                        yield from turns.passing(record.timestamp)
                        if turns.ends_batch():
                            return
                if is_skipped:
                    self._skip(record)
                    at += 1
                else:
                    count = self._apply_run(run[at:] if at else run)
                    self._coverage.applied(run[at + count - 1], count)
                    self._passed()
                    at += count
                    self.stepped = count
                yield
        if turns is not None or skipped:
            yield from self._moving(portion, None)

    def _runs(
        self, records: Sequence[InputRecord], skipped: Container[tuple[str, int]]
    ) -> Iterator[tuple[bool, Sequence[InputRecord]]]:
        """Yield runs of neighbours of one input, in slices, each with whether it is skipped."""
        start = 0
        while start < len(records) and not skipped and not self._ways.are_several:
            some = records[start : start + self.slice_records]
            yield False, some
            start += len(some)
        rest = records[start:]
        for (_, is_skipped), run in groupby(rest, lambda each: (each.topic, (each.topic, each.offset) in skipped)):
            while some := list(islice(run, self.slice_records)):
                yield is_skipped, some

    def _moving(self, portion: Portion, alone: OnFailure | None) -> Steps[RecordError | None]:
        """Move stream time, after the records."""
        if portion.to_ms is None:
            return None
        failure = None
        if self._turns is not None:
            failure = yield from self._turns.passing(portion.to_ms, portion.fired_count, alone)
        if failure is None and not (self._turns and self._turns.is_full):
            self._move_time(portion.to_ms)
        return failure

    def pass_over(self, ends: Mapping[str, int]) -> None:
        """Move past offsets without records, per input, as part of the batch."""
        for topic, end_offset in ends.items():
            self._coverage.pass_over(topic, end_offset)

    def staging(self) -> Steps[None]:
        """Encode what the batch changed and hash what it sent. The batch before it need not be merged yet. Raises
        RecordError: a value in the state cannot be written; the batch must be abandoned, and `isolating` finds the
        record."""
        yield from self._store.staging()
        self._outputs_xxh64 = yield from self._out.hashing()

    def sealing(self, failure: RecordError | None = None) -> Steps[Applied]:
        """Return the staged batch, ready for its transaction. The batch before it must be merged. `failure`: why
        the batch ends before the next record."""
        sealed = yield from self._store.sealing()
        coverage, out = self._coverage, self._out
        self._coverage = InputRanges({})  # its last record keeps the fetch that it was in
        return Applied(
            ranges=coverage.ranges,
            positions=coverage.positions,
            record_count=coverage.record_count,
            skipped=coverage.skipped,
            anchors=coverage.anchors,
            outputs=out.take(),
            handled=self._handled,
            late=out.take_late(),
            outputs_xxh64=self._outputs_xxh64,
            dead_letters=self._dead_letters,
            errors=self._errors,
            sealed=sealed,
            stream_time_ms=self._clock.stream_time_ms,
            failure=failure,
            contexts=self._contexts,
            **({} if self._turns is None else self._turns.counted(coverage.positions)),
        )

    def finishing(self) -> Steps[Applied]:
        """Stage, then seal. Raises as `staging`."""
        yield from self.staging()
        return (yield from self.sealing())

    def finish(self) -> Applied:
        """Run all of `finishing` at once."""
        return all_of(self.finishing())

    def abandon(self) -> None:
        """Undo what was applied since `begin`; outputs are dropped."""
        self._clock.stream_time_ms = self._began_at_ms
        self._coverage = InputRanges({})  # as in `sealing`
        self._out.cut()
        self._store.rollback()

    def isolating(self, positions: Mapping[str, int], portion: Portion) -> Steps[Applied]:
        """Apply what an abandoned batch was to apply again, from the same positions; what fails is found and left out.

        A failing record or timer changes nothing. With DEAD_LETTER it is skipped; with FAIL the batch ends before it,
        and `failure` says why."""
        self._start(positions, portion)
        failure = yield from self._isolating(portion)
        self._outputs_xxh64 = yield from self._out.hashing()
        return (yield from self.sealing(failure))

    def replaying(self, positions: Mapping[str, int], portion: Portion, feeding: Feeding = applying) -> Steps[Applied]:
        """Apply a recorded batch again: as a whole, or, if that fails, one by one, as it went the first time."""
        self.begin(positions, portion)
        try:
            yield from feeding(self, portion)
            return (yield from self.finishing())
        except RecordError:
            self.abandon()
        return (yield from self.isolating(positions, portion))

    def _isolating(self, portion: Portion) -> Steps[RecordError | None]:
        skipped, turns = offsets_of(portion.skipped), self._turns
        trying = partial(self._trying, portion.refused)
        for is_skipped, run in groupby(portion.records, lambda each: (each.topic, each.offset) in skipped):
            # What is due comes before the record that moves stream time: there each record is alone.
            for records in [list(run)] if turns is None else ([each] for each in run):
                if turns is not None:
                    record = records[0]
                    ahead = self._ahead(record, portion, is_skipped=is_skipped)
                    if ahead is not None:
                        if not self._skipped(record, ahead):
                            return ahead
                        continue
                    if not (is_skipped and self._stays(record)) and not turns.is_quiet(record.timestamp):
                        failure = yield from turns.passing(record.timestamp, alone=self._without)
                        if failure is not None or turns.ends_batch():
                            return failure
                if is_skipped:
                    for record in records:
                        self._skip_alone(record)
                    yield
                elif failure := (yield from halving(records, trying, self._skipped)):
                    return failure
        return (yield from self._moving(portion, self._without))

    def _skipped(self, record: InputRecord, error: RecordError) -> bool:
        """Say whether to continue without a record that failed."""
        if self._policy is ErrorPolicy.FAIL:
            return False
        limit_bytes = self._limits.get(dead_letters_topic(self._app.app_id), DEFAULT_LIMIT_BYTES)
        letter = dead_letter(self._app.app_id, self._app.version, record, error, limit_bytes)
        self._skip_alone(record)
        self._dead_letters.append(letter)
        self._errors.append(error)
        return True

    def _without(self, timer: Timer[Any], error: RecordError) -> bool:
        """Say whether to continue without a timer that failed."""
        if self._policy is ErrorPolicy.FAIL:
            return False
        self._dead_letters.append(timer_dead_letter(self._app.version, timer, error))
        self._errors.append(error)
        return True

    def _stays(self, record: InputRecord) -> bool:
        """Say whether stream time stays although this record, which is skipped, has a later timestamp. What lies above
        the stream time that the log has did not move it."""
        if self._recorded_ms is not None and record.timestamp > self._recorded_ms:
            return True  # also if its input has a larger bound now
        return self._is_far_ahead(record) and not self._far_moves_time

    def _is_far_ahead(self, record: InputRecord) -> bool:
        return is_far_ahead(record.timestamp, self._clock.stream_time_ms, self._ahead_max_ms(record))

    def _has_moved_far(self, portion: Portion) -> bool:
        """Say whether a version with a larger bound on timestamps, or none, has processed this recorded batch: every
        skipped record moved stream time then. Without that, its records do not come to the stream time that the log
        has."""
        if not portion.skipped:
            return False
        skipped, stream_time_ms = offsets_of(portion.skipped), self._clock.stream_time_ms
        for record in portion.records:
            if not is_far_ahead(record.timestamp, stream_time_ms, self._ahead_max_ms(record)):
                stream_time_ms = max(stream_time_ms, record.timestamp)
            elif (record.topic, record.offset) not in skipped:
                return True
        # What fired after the last record has moved it, too.
        return not portion.fired_count and portion.to_ms is not None and stream_time_ms < portion.to_ms

    def _ahead_max_ms(self, record: InputRecord) -> int | None:
        return self._ways[record.topic][0].ahead_max_ms

    def _ahead(self, record: InputRecord, portion: Portion, *, is_skipped: bool) -> RecordError | None:
        """Return the error for a record whose timestamp would let timers fire through years that have not come; None
        for any other, and for one of which the log says what became of it."""
        if is_skipped or portion.is_recorded or not self._is_far_ahead(record):
            return None
        return far_ahead(record, self._clock.stream_time_ms, self._ahead_max_ms(record))

    def _skip(self, record: InputRecord) -> None:
        """Skip a record: it has no effect but that of its timestamp, which it has had on the timers already, and that
        the call which it answers is not pending any more."""
        self._coverage.skip(record)
        self._out.calls.skipped(record.topic, record.value)
        if not self._stays(record):
            self._move_time(record.timestamp)
        self._passed()

    def _skip_alone(self, record: InputRecord) -> None:
        """Skip a record, staged before the next one is tried."""
        self._skip(record)
        if self._store.calls is not None:
            all_of(self._store.staging())

    def _passed(self) -> None:
        if self._turns is not None:
            self._turns.fired_count = 0

    def _move_time(self, to_ms: int) -> None:
        self._clock.stream_time_ms = max(self._clock.stream_time_ms, to_ms)

    def _start(self, positions: Mapping[str, int], portion: Portion | None) -> None:
        self._coverage = InputRanges(positions)
        portion = portion or NO_PORTION
        self._far_moves_time = portion.is_recorded and self._has_moved_far(portion)
        self._recorded_ms = portion.to_ms if portion.is_recorded else None
        self._began_at_ms = self._clock.stream_time_ms
        self._prefetched = [] if engine.compiled is None else list(self._store.maps.values())
        self._out.cut()
        self._outputs_xxh64 = {}
        self._dead_letters: list[Output] = []
        self._errors: list[RecordError] = []
        self._contexts: list[Headers] = []
        self._handled: dict[str, tuple[int, float]] = {}
        if self._turns is not None:
            self._turns.begin(portion)
            self._clock.quiet_before_ms = -1  # a batch that was dropped, or a recovery, has changed what is due

    def _apply_run(self, run: Sequence[InputRecord]) -> int:
        """Apply records of one input in the hot loop: the first one, and those after it before which nothing can be
        due. Returns how many."""
        app_id, partition, out = self._app.app_id, self.partition, self._out
        view, clock = self._store.view, self._clock
        stream_time_ms = clock.stream_time_ms
        record = run[0]
        name = record.topic
        position = self._coverage.positions[name]
        topic, handler, decode_key, is_text_key, decode_value, takes_null = self._ways[name]
        looks, is_timed, rest = False, self._turns is not None, iter(run)
        carried = carrying(handler, self._contexts) if self._carries else handler
        count, began = len(run), self._seconds()
        if self._prefetched and count >= PREFETCH_MIN and (is_text_key or topic.key is raw):
            kind = str if is_text_key else bytes
            self._prefetched = [store for store in self._prefetched if store.prefetch(run, kind)]
        self._gate.open()
        try:
            if engine.compiled is not None and isinstance(run, list):
                decode = None if is_text_key else decode_key
                decoding = decode, decode_value, takes_null, Record, (app_id, name, partition)
                how = out, view, handler, carried, *decoding, returned_value
                done, error = engine.compiled.apply(run, position, clock, is_timed, *how)
                if error is not None:
                    record = run[done]
                    raise error
                if done == count:
                    return count
                if done:  # the rest needs another look
                    rest, looks = iter(run[done:]), is_timed
                    position, stream_time_ms = run[done - 1].offset + 1, clock.stream_time_ms
            apply = carried if self._carries and any(map(_HEADERS, run)) else handler
            for record in rest:
                offset, timestamp_ms = record.offset, record.timestamp
                if looks and (max(stream_time_ms, timestamp_ms)) >= clock.quiet_before_ms:
                    count -= length_hint(rest) + 1
                    return count
                looks = is_timed
                if offset < position:
                    raise out_of_order(record, position)
                position = offset + 1
                if timestamp_ms > stream_time_ms:
                    clock.stream_time_ms = stream_time_ms = timestamp_ms
                elif timestamp_ms < 0:  # it has none: it comes at stream time
                    timestamp_ms = stream_time_ms
                out.at_ms = timestamp_ms
                key = out.input_key = record.key
                if is_text_key and 0 in key:  # type: ignore[operator] # of None it is an error, too
                    raise ValueError
                data = record.value
                value = None if data is None and takes_null else decode_value(data)
                decoded = Record(app_id, name, partition, offset, timestamp_ms, decode_key(key), value, record.headers)
                answer = apply(decoded, view, out)
                if answer is not None:
                    raise returned_value(answer)
        except BaseException as error:
            if passes(error):
                raise
            found = record_error(record, topic, handler, error)
            raise found from found.__cause__
        finally:
            self._gate.close()
            before, seconds = self._handled.get(name, (0, 0.0))
            self._handled[name] = before + count, seconds + self._seconds() - began
        return count

    def _trying(self, refused: RecordError | None, together: Sequence[InputRecord]) -> Steps[Tried]:
        """Apply the records as one batch, staged after those before it; or, after an error, none of them."""
        store = self._store
        outputs_before, stream_time_before_ms = self._out.mark(), self._clock.stream_time_ms
        applied_count, positions = 0, dict(self._coverage.positions)
        store.begin()
        try:
            for record in together:
                if record.offset < positions[record.topic]:
                    raise out_of_order(record, positions[record.topic])
                positions[record.topic] = record.offset + 1
                if refused is not None and id_of(record) == refused.record_id:
                    raise refused
                self._apply_run((record,))
                applied_count += 1
                yield
            yield from self._staging_for(together[-1])
        except RecordError as error:
            store.rollback()
            self._clock.stream_time_ms = stream_time_before_ms
            self._out.cut(outputs_before)
            return error, applied_count
        for record in together:
            self._coverage.applied(record, 1)
        self._passed()
        return None, applied_count

    def _staging_for(self, record: InputRecord) -> Steps[None]:
        try:
            yield from self._store.staging()
        except RecordError as error:
            topic, handler, *_ = self._ways[record.topic]
            raise record_error(record, topic, handler, error) from error.__cause__


_Way = tuple[Topic[Any, Any], Callable[..., Any], Callable[[Any], Any], bool, Callable[[Any], Any], bool]


class _Ways(dict[str, _Way]):
    """Input topic → its declaration, its handler, the decoder of keys and whether they are text, the decoder of values
    and whether they may be null. A codec that takes no null refuses it when it decodes.

    The key of each record passes here, and `utf8.decode` is a Python function because it refuses NUL. The hot loop
    looks for NUL itself, and decodes by the function written in C: that takes 60 ns instead of 80.

    A topic of a pattern is found when it is met.
    """

    def __init__(self, app: App[Any]) -> None:
        super().__init__()
        self._app = app
        self.are_several = len(app.inputs) > 1 or bool(app.patterns)
        for topic in app.inputs:
            is_text = topic.key is utf8
            decode_key = bytes.decode if is_text else topic.key.decode
            if topic.key.nullable:
                decode_key = _nullable(decode_key)
            handler = sourced(app, app.handlers[topic])
            self[topic.name] = topic, handler, decode_key, is_text, topic.value.decode, topic.value.nullable

    def __missing__(self, name: str) -> _Way:
        declared = self._app.declaration(name)
        if declared is None:
            raise KeyError(name)
        self[name] = way = self[declared.name]
        return way


def _nullable(decode: Callable[[Any], Any]) -> Callable[[bytes | None], Any]:
    return lambda data: None if data is None else decode(data)
