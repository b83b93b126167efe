"""The part of the input that a batch covers: ranges in the order applied, skipped records. Pure.

Ranges are half-open: "end" means "next".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from xxhash import xxh64_intdigest

from snapreplay.app.record import InputRecord, id_of
from snapreplay.errors import StopError


class InputRange(msgspec.Struct, frozen=True, array_like=True):
    """A run of records of one input topic, in the order applied.

    `start_offset <= end_offset`; a range starts where the previous one of its topic ended, so gaps
    (transaction markers, compaction) lie inside ranges, never between them. `record_count` counts
    the records read there, skipped ones included: a replay must read as many.
    """

    topic: str
    start_offset: int
    end_offset: int
    record_count: int


class SkippedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets in [start_offset, end_offset) whose records were dead-lettered; a replay skips the same ones."""

    topic: str
    start_offset: int
    end_offset: int


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """Identity of the last record of an input, applied or skipped; a recovery must find it again before LIVE."""

    offset: int
    timestamp_ms: int
    xxh64: int  # of key, then value, each behind its 4-byte big-endian length (-1 for null)


class PositionAnchor(msgspec.Struct, frozen=True, array_like=True):
    """Identity of the record batch in Kafka's log that holds the offset directly below a position.

    It may be of records, of aborted records or of a transaction marker. Every replica of a log has the same; a log that
    was cut and grew again has another one.
    """

    leader_epoch: int
    crc32c: int


def anchor_of(record: InputRecord) -> Anchor:
    """Return the record's anchor. Its hash of key and value tells inputs with equal timestamps and lengths apart."""
    framed = _framed(record.key) + _framed(record.value)
    return Anchor(record.offset, record.timestamp, xxh64_intdigest(framed))


def _framed(data: bytes | None) -> bytes:
    """Put the length in front, as Kafka's protocol does, so that ("a", "bc") and ("ab", "c") differ."""
    if data is None:
        return (-1).to_bytes(4, "big", signed=True)
    return len(data).to_bytes(4, "big", signed=True) + data


class OutOfOrder(StopError):
    """A record is below the position of its input, so it would count twice."""


class InputRanges:
    """Grows by runs of records of one input.

    A range starts where the previous one of its input ended (the first one at the position the batch
    began with). Neighbouring runs of one input are one range, however the records were fed.
    """

    __slots__ = ("_last", "positions", "ranges", "record_count", "skipped")

    def __init__(self, positions: Mapping[str, int]) -> None:
        """Begin at `positions`: next offset of each input."""
        self.positions = dict(positions)
        self.record_count = 0
        """Applied records, the skipped ones not counted."""
        self.ranges: list[InputRange] = []
        self.skipped: list[SkippedRange] = []
        """Neighbours are one range when nothing was applied between them."""
        self._last: dict[str, InputRecord] = {}

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
        for index in range(len(self.skipped) - 1, -1, -1):
            before = self.skipped[index]
            if before.topic == topic:
                if before.end_offset == position:
                    start = before.start_offset
                    del self.skipped[index]
                break
        self._extend(topic, end, 1)
        self._last[topic] = record
        self.skipped.append(SkippedRange(topic, start, end))

    def pass_over(self, topic: str, end_offset: int) -> None:
        """Note that there are no records before `end_offset`, only markers, aborted records or gaps."""
        self._extend(topic, end_offset, 0)

    def _extend(self, topic: str, end_offset: int, count: int) -> None:
        start_offset = self.positions[topic]
        self.positions[topic] = end_offset
        if self.ranges and self.ranges[-1].topic == topic:
            before = self.ranges.pop()
            start_offset, count = before.start_offset, before.record_count + count
        self.ranges.append(InputRange(topic, start_offset, end_offset, count))


def offsets_of(ranges: Iterable[SkippedRange]) -> set[tuple[str, int]]:
    """Return (topic, offset) of each record in them."""
    return {(part.topic, offset) for part in ranges for offset in range(part.start_offset, part.end_offset)}


def out_of_order(record: InputRecord, position: int) -> OutOfOrder:
    return OutOfOrder(
        f"record {id_of(record)} came, but the next offset of {record.topic} is {position}:"
        " records must be fed in offset order from the batch's positions on",
        offset=record.offset,
        position=position,
    )
