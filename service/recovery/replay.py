"""The input once more, batch by batch as it was applied: same order, same skips; outputs are dropped, not sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from snapreplay.app.batch import Applied, ErrorPolicy, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.ranges import InputRange
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import RecordError, StopError
from snapreplay.service.ports import NO_IDS, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import apply, run_cooperatively
from snapreplay.service.topics.increments import Step
from snapreplay.state.contract import Store


class InputDiffers(StopError):
    """A range of the input holds more or fewer records than when it was processed."""


class ReplayFailed(StopError):
    """In a replay, a handler refused a record that was processed."""


class Replayer:
    """Replays recorded batches into a store. One reader per input, because ranges of several inputs alternate."""

    def __init__(
        self,
        context: Context,
        store: Store,
        positions: Mapping[str, int],
        end: Mapping[str, int],
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> None:
        """`positions` are those of the state in `store`, `end` those of the last batch to replay. The inputs are read
        by `topic_ids`."""
        self._topic_ids = topic_ids
        self._context = context
        self._store = store
        self._positions = dict(positions)
        self._end = end
        self._fold = Fold(
            context.app,
            store,
            context.partition,
            output_limits=context.view.output_limits,
            policy=ErrorPolicy.FAIL,
        )
        self._inputs: dict[str, _InputCursor] = {}

    async def apply(self, step: Step) -> dict[str, int]:
        """One batch. Skips exactly what the increment lists, and nothing else.

        Returns:
            output topic → hash of what the handlers sent.

        Raises:
            InputDiffers, ReplayFailed: STOP.
            OffsetTrimmed: the input's records are gone.
            DamagedError: an increment before it cannot be read, and only there its ranges and skips are.
        """
        for each in step.unread:
            raise each.error
        increment = step.increment
        if increment.cleared:
            self._store.apply_changes({}, increment.cleared)
        records: list[InputRecord] = []
        for part in increment.ranges:
            cursor = await self._cursor(part)
            records += await cursor.take(part)
        applied = await self._apply(increment.portion(records))
        if isinstance(applied, RecordError):
            raise ReplayFailed(
                f"replaying batch {increment.batch}: {applied.message}",
                hint=applied.hint,
                record_id=applied.record_id,
                batch=increment.batch,
            ) from applied
        self._store.merge()
        self._positions |= increment.positions
        return applied.outputs_xxh64

    async def _apply(self, portion: Portion) -> Applied | RecordError:
        """As a whole; if that fails, record by record, as it went the first time; or why a record cannot be applied."""
        self._fold.begin(self._positions, portion)
        try:
            await apply(self._fold, portion)
            return await run_cooperatively(self._fold.finishing())
        except RecordError as error:
            self._fold.abandon()
            if not self._store.can_roll_back:
                return error
            alone = await run_cooperatively(self._fold.isolating(self._positions, portion))
            return alone.failure or alone

    async def close(self) -> None:
        for cursor in self._inputs.values():
            await cursor.close()

    async def _cursor(self, part: InputRange) -> _InputCursor:
        cursor = self._inputs.get(part.topic)
        if cursor is None:
            partition = TopicPartition(part.topic, self._context.partition)
            reader = await self._context.cluster.reader(topic_ids=self._topic_ids)
            cursor = _InputCursor(reader, partition, part.start_offset, self._end[part.topic])
            self._inputs[part.topic] = cursor
        return cursor


class _InputCursor:
    """One input partition, read forward once."""

    def __init__(self, reader: Reader, partition: TopicPartition, start: int, end: int) -> None:
        self._reader = reader
        self._slices: AsyncIterator[Sequence[InputRecord]] = reader.read(partition, start, end)
        self._slice: Sequence[InputRecord] = ()
        self._next = 0

    async def take(self, part: InputRange) -> list[InputRecord]:
        """The records of this range; ranges must come in rising order."""
        taken: list[InputRecord] = []
        while True:
            while self._next < len(self._slice):
                record = self._slice[self._next]
                if record.offset >= part.end_offset:
                    return _counted(taken, part)
                taken.append(record)
                self._next += 1
            if taken and taken[-1].offset == part.end_offset - 1:
                return _counted(taken, part)
            following = await anext(self._slices, None)
            if following is None:
                return _counted(taken, part)
            self._slice, self._next = following, 0

    async def close(self) -> None:
        await self._reader.close()


def _counted(records: list[InputRecord], part: InputRange) -> list[InputRecord]:
    if len(records) != part.record_count:
        raise InputDiffers(
            f"input {part.topic} holds {counted(len(records), 'record')} in offsets {part.start_offset} to"
            f" {part.end_offset}, but it held {part.record_count} when processed: it was compacted, trimmed or"
            " created again",
            recorded=part.record_count,
            found=len(records),
        )
    return records
