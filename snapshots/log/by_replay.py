"""The handlers run again over recorded batches: same order, same skips; outputs are dropped, not sent. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.batch import Applied, Feeding
from snapreplay.app.fold import Fold
from snapreplay.app.out import limits_of_a_replay
from snapreplay.app.ranges import InputRange, anchor_of
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, StopError
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Step
from snapreplay.snapshots.log.reading import Reading, Slice, Source
from snapreplay.state.composite import Store

_OFFSET = attrgetter("offset")


class InputDiffers(StopError):
    """A range of the input has more, fewer or other records than when it was processed."""


class InputRetired(DamagedError):
    """A batch covers an input that was retired later: this version of the app has no handler for its records, or reads
    the input again."""


class Replay:
    """Replays the batches after those that are in `store`. Outputs that the log accepted are never refused.

    Attributes:
        positions: next offset of each input.
        record_count: how many records were read again.
    """

    def __init__(
        self,
        app: App[Any],
        store: Store,
        partition: int,
        positions: Mapping[str, int],
        end_positions: Mapping[str, int],
        feeding: Feeding = Fold.applying,
    ) -> None:
        """Begin with a state.

        Args:
            positions: those of the state in `store`.
            end_positions: those of the last batch to replay; nothing behind them is read.
            feeding: how a batch is applied; in short steps where others wait.
        """
        self.positions = dict(positions)
        self.record_count = 0
        self._store = store
        self._feeding = feeding
        self._fold = Fold(app, store, partition, output_limits=limits_of_a_replay(app.outputs))
        self._end_positions = end_positions
        self._inputs: dict[str, Input] = {}

    def batch(self, step: Step) -> Reading[Applied | None]:
        """Apply one batch. Skips exactly what the increment lists, and nothing else.

        Returns:
            What the handlers did; None for an empty batch.

        Raises:
            InputDiffers: the input is not what was processed.
            InputRetired: the app does not have the input any more, or has gone back in it.
            RecordError: a handler refuses a record that was processed.
            DamagedError: an increment before it cannot be read, and only there its ranges and skips are.
        """
        for each in step.unread:
            raise each.error
        increment, applied = step.increment, None
        if increment.cleared:
            self._store.apply_changes({}, increment.cleared)
        if not increment.is_empty:
            records: list[InputRecord] = []
            for part in increment.ranges:
                records += yield from self._taken(part)
            _check_last(increment, records)
            self.record_count += len(records)
            portion = increment.portion(records)
            applied = yield from self._fold.replaying(self.positions, portion, self._feeding)
            if applied.failure is not None:
                raise applied.failure
            self._store.merge()
        self.positions |= increment.positions
        self._store.stream_time_ms = increment.stream_time_ms
        return applied

    def _taken(self, part: InputRange) -> Reading[list[InputRecord]]:
        end_offset, known = self._end_positions.get(part.topic, -1), self._inputs.get(part.topic)
        if end_offset < part.end_offset or (known is not None and part.start_offset < known.position):
            if not part.record_count:
                return []
            raise InputRetired(
                f"offsets {part.start_offset} to {part.end_offset} of {part.topic} were processed, and this input was"
                f" retired since{'' if end_offset < 0 else ', and added again from an earlier offset'}",
                topic=part.topic,
            )
        if known is None:
            known = self._inputs[part.topic] = Input(Source(part.topic, part.start_offset, end_offset))
        return (yield from known.taking(part))


def _check_last(increment: Increment, records: Sequence[InputRecord]) -> None:
    """Check the last record of each input: what comes before it is compared with the outputs and the digest, which
    blame the app."""
    for topic, record in {each.topic: each for each in records}.items():
        recorded, found = increment.anchors.get(topic), anchor_of(record)
        if recorded not in (None, found):
            raise InputDiffers(
                f"input {topic} holds another record at offset {record.offset} than the one processed in batch"
                f" {increment.batch}: the topic was cut and has grown again, was created again, or is another mirror",
                recorded=str(recorded),
                found=str(found),
            )


class Input:
    """One input partition, read forward once. `position`: behind what was taken."""

    def __init__(self, source: Source) -> None:
        self.position = source.start_offset
        self._source = source
        self._slice: Slice = ()
        self._next = 0

    def taking(self, part: InputRange) -> Reading[list[InputRecord]]:
        """Return the records of this range; ranges must come in rising order.

        Raises:
            InputDiffers: there are more or fewer than when it was processed.
        """
        self.position = part.end_offset
        taken: list[InputRecord] = []
        while not taken or taken[-1].offset < part.end_offset - 1:
            if self._next == len(self._slice):
                self._slice, self._next = (yield self._source), 0
            end = bisect_left(self._slice, part.end_offset, self._next, key=_OFFSET)
            taken += self._slice[self._next : end]
            self._next = end
            if end < len(self._slice) or not self._slice:
                break
        if len(taken) != part.record_count:
            raise InputDiffers(
                f"input {part.topic} holds {counted(len(taken), 'record')} in offsets {part.start_offset} to"
                f" {part.end_offset}, but it held {part.record_count} when processed: it was compacted, trimmed or"
                " created again",
                recorded=part.record_count,
                found=len(taken),
            )
        return taken
