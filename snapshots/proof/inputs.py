"""The records of recorded ranges, for a replay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from snapreplay.app.ranges import InputRange
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, RecordsGone
from snapreplay.snapshots.proof.records import Slices

ReadInput = Callable[[str, int, int], Slices]
"""(topic, start offset, end offset) → committed records of this partition of an input."""


class InputUnavailable(DamagedError):
    """The records of a range cannot be read any more."""


class Inputs:
    """Each input partition is read forward once."""

    def __init__(self, read: ReadInput, ends: Mapping[str, int]) -> None:
        self._read = read
        self._ends = ends
        self._cursors: dict[str, Iterator[Sequence[InputRecord]]] = {}
        self._ahead: dict[str, Sequence[InputRecord]] = {}

    def take(self, part: InputRange) -> list[InputRecord]:
        """The records of this range; ranges of a topic come in rising order.

        Raises:
            InputUnavailable: they are not there any more.
            DamagedError: more or fewer than when it was processed.
            SnapreplayError: they cannot be read now, as the reader says.
        """
        topic, taken = part.topic, list[InputRecord]()
        if topic not in self._cursors:
            self._cursors[topic] = iter(self._read(topic, part.start_offset, self._ends[topic]))
        records = self._ahead.pop(topic, None) or self._next(topic)
        while records and records[-1].offset < part.end_offset:
            taken += records
            records = self._next(topic)
        if records:
            cut = bisect_left(records, part.end_offset, key=_OFFSET)
            taken += records[:cut]
            self._ahead[topic] = records[cut:]
        if len(taken) != part.record_count:
            raise DamagedError(
                f"input {topic} holds {counted(len(taken), 'record')} in offsets {part.start_offset} to"
                f" {part.end_offset}; when it was processed it held {part.record_count}"
            )
        return taken

    def _next(self, topic: str) -> Sequence[InputRecord]:
        """The next slice; empty at the end."""
        try:
            return next(self._cursors[topic], ())
        except RecordsGone as error:
            raise InputUnavailable(f"input {topic}: {error.message}") from error


_OFFSET = attrgetter("offset")
