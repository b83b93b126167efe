"""The input that a batch covers: ranges in the order applied, skipped records, and where each input continues.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snapreplay.app.ranges import Anchor, InputRange, SkippedRange, anchor_of
from snapreplay.app.record import InputRecord, id_of
from snapreplay.errors import StopError


class OutOfOrder(StopError):
    """A record below its input's position: applying it would count it twice."""


class InputRanges:
    """Grows by runs of records of one input.

    A range starts where the previous one of its input ended (the first one at the position the batch
    began with). Neighbouring runs of one input are one range, however the records were fed.
    """

    __slots__ = ("_last", "_ranges", "_skipped", "positions", "record_count")

    def __init__(self, positions: Mapping[str, int]) -> None:
        """Begin at `positions`: next offset of each input."""
        self.positions = dict(positions)
        self.record_count = 0
        """Applied records, the skipped ones not counted."""
        self._ranges: list[InputRange] = []
        self._skipped: list[SkippedRange] = []
        self._last: dict[str, InputRecord] = {}

    @property
    def ranges(self) -> list[InputRange]:
        return list(self._ranges)

    @property
    def skipped(self) -> list[SkippedRange]:
        """Neighbours are one range when nothing was applied between them."""
        return list(self._skipped)

    @property
    def anchors(self) -> dict[str, Anchor]:
        """The last record of each input that has one, applied or skipped."""
        return {topic: anchor_of(record) for topic, record in self._last.items()}

    def applied(self, last: InputRecord, count: int) -> None:
        """Note that `count` records of one input, up to `last`, were applied; none between them was skipped."""
        self._extend(last.topic, last.offset + 1, count)
        self._last[last.topic] = last
        self.record_count += count

    def skip(self, record: InputRecord) -> None:
        """Note that this record was not applied, and that a replay must not apply it."""
        topic, start, end = record.topic, record.offset, record.offset + 1
        position = self.positions[topic]
        for index in range(len(self._skipped) - 1, -1, -1):
            before = self._skipped[index]
            if before.topic == topic:
                if before.end_offset == position:
                    start = before.start_offset
                    del self._skipped[index]
                break
        self._extend(topic, end, 1)
        self._last[topic] = record
        self._skipped.append(SkippedRange(topic, start, end))

    def pass_over(self, topic: str, end_offset: int) -> None:
        """Note that there are no records before `end_offset`, only markers, aborted records or gaps."""
        self._extend(topic, end_offset, 0)

    def _extend(self, topic: str, end_offset: int, count: int) -> None:
        start_offset = self.positions[topic]
        self.positions[topic] = end_offset
        if self._ranges and self._ranges[-1].topic == topic:
            before = self._ranges.pop()
            start_offset, count = before.start_offset, before.record_count + count
        self._ranges.append(InputRange(topic, start_offset, end_offset, count))


def offsets_of(ranges: Iterable[SkippedRange]) -> set[tuple[str, int]]:
    """Return (topic, offset) of each record in them."""
    return {
        (part.topic, offset)
        for part in ranges
        for offset in range(part.start_offset, part.end_offset)
    }


def out_of_order(record: InputRecord, position: int) -> OutOfOrder:
    return OutOfOrder(
        f"record {id_of(record)} came, but the next offset of {record.topic} is {position}:"
        " records must be fed in offset order from the batch's positions on",
        offset=record.offset,
        position=position,
    )
