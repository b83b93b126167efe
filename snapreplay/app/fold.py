"""The fold: how records become state and outputs, live, in replay, in tests and on Spark executors. Pure.

    begin → feed … feed → finish      the normal way (or staging, later sealing); RecordError leads to
            abandon, isolate          the same records in smaller batches: only the failing one is dropped

The effect of a batch (state, outputs, skipped records) is that of its records as batches of one.
Where the two could differ (one object under two keys, in two records), the batch fails and
`isolate` decides.
One case passes, because finding it would cost an encoding per record: a value that cannot be
written but is repaired, overwritten or deleted by a later record of the same batch. A replay repeats
the same batches, so it agrees; `snapreplay.testing.check` finds such a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.codecs import Codec
from snapreplay.app.dead_letter import dead_letter
from snapreplay.app.failure import NEVER_HANDLER_ERRORS, answered, record_error
from snapreplay.app.input_ranges import InputRanges, out_of_order
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, Out
from snapreplay.app.output_hash import hashing
from snapreplay.app.ranges import Anchor, InputRange, SkippedRange
from snapreplay.app.record import InputRecord, Output, Record, id_of
from snapreplay.errors import RecordError, StopError, UsageError
from snapreplay.state.contract import Sealed, Store
from snapreplay.state.steps import Steps, all_of

PASSING = (*NEVER_HANDLER_ERRORS, StopError)


class ErrorPolicy(Enum):
    """What becomes of a record that cannot be applied."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Applied:
    """A batch, applied and sealed: what goes into its transaction.

    Attributes:
        ranges: what was read, in the order applied, skipped records included; empty if the first
            record failed.
        positions: next offset of every input.
        record_count: applied records, without the skipped ones.
        skipped: the dead-lettered records.
        anchors: the last record of each input that had any, applied or skipped.
        outputs: what the handlers sent, in order, without outputs of skipped records.
        outputs_xxh64: output topic → hash of what was sent to it; a replay must give the same.
        dead_letters: one record for the dead-letter topic for each skipped record, in order.
        errors: the reasons, in the order of `dead_letters`.
        sealed: the effect on the state.
        stream_time_ms: highest timestamp of all records applied so far; -1 before the first.
        failure: with policy FAIL, why the record after `ranges` could not be applied; that record
            and those after it are not covered.
    """

    ranges: list[InputRange]
    positions: dict[str, int]
    record_count: int
    skipped: list[SkippedRange]
    anchors: dict[str, Anchor]
    outputs: list[Output]
    outputs_xxh64: dict[str, int]
    dead_letters: list[Output]
    errors: list[RecordError]
    sealed: Sealed
    stream_time_ms: int
    failure: RecordError | None = None


class Fold:
    """Applies batches of one partition to one store. `store.stream_time_ms` lasts across batches."""

    def __init__(
        self,
        app: App[Any],
        store: Store,
        partition: int,
        *,
        output_limits: Mapping[str, int] | None = None,
        policy: ErrorPolicy = ErrorPolicy.FAIL,
    ) -> None:
        """
        Args:
            output_limits: topic name → the largest record it accepts (max.message.bytes); Kafka's
                default for topics not named.

        Raises:
            UsageError: the policy is DEAD_LETTER, but the state cannot undo half a record.
        """
        if policy is ErrorPolicy.DEAD_LETTER and not store.can_roll_back:
            raise UsageError(
                f"{app.app_id}: errors.policy = dead_letter needs a state that can undo a record",
                hint="give the state begin() and rollback(), use a MapState, or set errors.policy = fail",
            )
        self.partition = partition
        self._app = app
        self._store = store
        self._policy = policy
        self._limits = output_limits or {}
        self._out = Out(app.outputs, self._limits)
        self._ways = {
            topic.name: (topic, app.handlers[topic], _decoder(topic.key), _decoder(topic.value))
            for topic in app.inputs
        }
        self._coverage = InputRanges({})
        self._began_at_ms = -1
        self._outputs_xxh64: dict[str, int] = {}

    def begin(self, positions: Mapping[str, int]) -> None:
        """Start a batch. `positions`: next offset of each input."""
        self._start(positions)
        self._store.begin()

    def feed(self, records: Sequence[InputRecord]) -> None:
        """Apply records in this order; may be called several times per batch. Offsets must rise within each input.

        Raises:
            RecordError: `record_id` names the record; the batch must be abandoned.
            OutOfOrder: a record below its input's position.
        """
        if not records:
            return
        runs: Iterable[Sequence[InputRecord]] = (records,)
        if len(self._ways) > 1:
            runs = (list(run) for _, run in groupby(records, key=attrgetter("topic")))
        for run in runs:
            self._apply_run(run)
            self._coverage.applied(run[-1], len(run))

    def pass_over(self, ends: Mapping[str, int]) -> None:
        """Move past offsets without records, per input, as part of the batch."""
        for topic, end_offset in ends.items():
            self._coverage.pass_over(topic, end_offset)

    def staging(self) -> Steps[None]:
        """Encode what the batch changed and hash what it sent. The batch before it need not be merged yet.

        Raises:
            RecordError: a value in the state cannot be written; the batch must be abandoned, and
                `isolate` finds the record.
        """
        yield from self._store.staging()
        self._outputs_xxh64 = yield from hashing(self._out.staged)

    def sealing(self) -> Steps[Applied]:
        """Return the staged batch, ready for its transaction. The batch before it must be merged."""
        return self._applied(None, [], [])

    def finishing(self) -> Steps[Applied]:
        """`staging`, then `sealing`. Raises as `staging`."""
        yield from self.staging()
        return (yield from self.sealing())

    def finish(self) -> Applied:
        """Run all of `finishing` at once."""
        return all_of(self.finishing())

    def abandon(self) -> None:
        """Undo what was applied since `begin`; outputs are dropped.

        A store that cannot roll back is unusable afterwards: clear and restore it.
        """
        self._store.stream_time_ms = self._began_at_ms
        self._out.staged.clear()
        if self._store.can_roll_back:
            self._store.rollback()
        else:
            self._store.drop()

    def isolate(self, positions: Mapping[str, int], records: Sequence[InputRecord]) -> Applied:
        """Apply the records of an abandoned batch again, from the same positions; a failing one alone.

        A failing record changes nothing. With DEAD_LETTER it is skipped; with FAIL the batch ends
        before it, and `failure` says why.

        Raises:
            UsageError: the store cannot roll back; restore it, then feed only the records before
                the failing one.
        """
        return all_of(self.isolating(positions, records))

    def isolating(
        self,
        positions: Mapping[str, int],
        records: Sequence[InputRecord],
        refused: RecordError | None = None,
    ) -> Steps[Applied]:
        """As `isolate`, in steps. `refused` is not applied but taken for an error of the record it names.

        A value that many records touch costs its whole size each time it is staged. So records are staged
        together as long as they can be, and halved when they cannot: a batch with one failing record costs about two
        batches.

        Raises:
            UsageError: as `isolate`.
        """
        if not self._store.can_roll_back:
            raise UsageError(f"{self._app.app_id}: the state cannot undo a single record")
        self._start(positions)
        dead_letters, errors = list[Output](), list[RecordError]()
        # One of the records from `start` to `suspects_end` fails, or several do together.
        start, suspects_end, size = 0, len(records), max(1, len(records) // 2)
        while start < len(records):
            together = records[start : start + size]
            error, applied_count = yield from self._trying(together, refused)
            if error is None:
                start += len(together)
                size = max(1, (suspects_end - start) // 2) if start < suspects_end else 2 * size
            elif len(together) > 1:
                all_applied = applied_count == len(together)
                suspects_end = start + applied_count + (not all_applied)
                size = max(1, applied_count // 2 if all_applied else applied_count)
            elif self._policy is ErrorPolicy.FAIL:
                return (yield from self._sealing_isolated(error, dead_letters, errors))
            else:
                self._coverage.skip(together[0])
                dead_letters.append(self._dead_letter(together[0], error))
                errors.append(error)
                start += 1
        return (yield from self._sealing_isolated(None, dead_letters, errors))

    def _start(self, positions: Mapping[str, int]) -> None:
        self._coverage = InputRanges(positions)
        self._began_at_ms = self._store.stream_time_ms
        self._out.staged.clear()
        self._outputs_xxh64 = {}

    def _apply_run(self, run: Sequence[InputRecord]) -> None:
        """The hot loop: at least one record, all of one input."""
        app_id, partition, store, out = self._app.app_id, self.partition, self._store, self._out
        view, stream_time_ms = store.view, store.stream_time_ms
        record = run[0]
        name = record.topic
        position = self._coverage.positions[name]
        topic, handler, decode_key, decode_value = self._ways[name]
        try:
            for record in run:
                offset, timestamp_ms = record.offset, record.timestamp
                if offset < position:
                    raise out_of_order(record, position)
                position = offset + 1
                if timestamp_ms > stream_time_ms:
                    store.stream_time_ms = stream_time_ms = timestamp_ms
                key = out.input_key = record.key
                value = decode_value(record.value)
                decoded = Record(
                    app_id,
                    name,
                    partition,
                    offset,
                    timestamp_ms,
                    decode_key(key),
                    value,
                    record.headers,
                )
                answer = handler(decoded, view, out)
                if answer is not None:
                    raise answered(answer)
        except PASSING:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an answer
            found = record_error(record, topic, handler, error)
            raise found from found.__cause__

    def _trying(
        self, together: Sequence[InputRecord], refused: RecordError | None
    ) -> Steps[tuple[RecordError | None, int]]:
        """Applies the records as one batch, staged after those before it; or, after an error, none of them.

        Returns:
            The error, and how many records were applied before it; all of them if only staging failed.
        """
        store, staged = self._store, self._out.staged
        outputs_before, stream_time_before_ms = len(staged), store.stream_time_ms
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
            store.stream_time_ms = stream_time_before_ms
            del staged[outputs_before:]
            return error, applied_count
        for record in together:
            self._coverage.applied(record, 1)
        return None, applied_count

    def _staging_for(self, record: InputRecord) -> Steps[None]:
        try:
            yield from self._store.staging()
        except RecordError as error:
            topic, handler, _, _ = self._ways[record.topic]
            raise record_error(record, topic, handler, error) from error.__cause__

    def _sealing_isolated(
        self, failure: RecordError | None, dead_letters: list[Output], errors: list[RecordError]
    ) -> Steps[Applied]:
        self._outputs_xxh64 = yield from hashing(self._out.staged)
        return (yield from self._applied(failure, dead_letters, errors))

    def _dead_letter(self, record: InputRecord, error: RecordError) -> Output:
        topic = dead_letters_topic(self._app.app_id)
        limit_bytes = self._limits.get(topic, DEFAULT_LIMIT_BYTES)
        return dead_letter(self._app.app_id, self._app.version, record, error, limit_bytes)

    def _applied(
        self, failure: RecordError | None, dead_letters: list[Output], errors: list[RecordError]
    ) -> Steps[Applied]:
        sealed = yield from self._store.sealing()
        coverage, out = self._coverage, self._out
        outputs, out.staged = out.staged, []
        return Applied(
            ranges=coverage.ranges,
            positions=coverage.positions,
            record_count=coverage.record_count,
            skipped=coverage.skipped,
            anchors=coverage.anchors,
            outputs=outputs,
            outputs_xxh64=self._outputs_xxh64,
            dead_letters=dead_letters,
            errors=errors,
            sealed=sealed,
            stream_time_ms=self._store.stream_time_ms,
            failure=failure,
        )


def _decoder(codec: Codec[Any]) -> Callable[[bytes | None], Any]:
    """If the codec is not nullable there is no test for null: `decode` refuses None anyway."""
    decode: Callable[[Any], Any] = codec.decode
    if not codec.nullable:
        return decode
    return lambda data: None if data is None else decode(data)
