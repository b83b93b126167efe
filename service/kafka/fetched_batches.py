"""The record batches of a log as they were fetched: which one lies directly below a position.

A position is behind a record, an aborted record or a marker. Whatever it is, a batch of the log holds the offset below
it. The batch's head has the leader epoch under which it was written and the checksum of all that it holds.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from snapreplay.app.ranges import PositionAnchor

# Of a record batch: base offset, length of what follows, leader epoch, format, checksum, last offset delta.
_HEAD = struct.Struct(">qiibI2xi")
_BEFORE_LENGTH_ENDS = 12  # bytes: base offset and length
_LENGTH_MIN = _HEAD.size - _BEFORE_LENGTH_ENDS
_WITH_LEADER_EPOCH = 2  # the format since Kafka 0.11


class LogBatch(NamedTuple):
    """A record batch in a log. It holds the offsets base_offset <= offset < end_offset, of records or of none."""

    base_offset: int
    end_offset: int
    anchor: PositionAnchor


def batches_in(records: bytes | None) -> Iterator[LogBatch]:
    """Return the whole batches of a fetch's answer that have a leader epoch, up to one whose length is damaged."""
    for base, end, epoch, crc in _heads_in(records):
        yield LogBatch(base, end, PositionAnchor(epoch, crc))


def _heads_in(records: bytes | None) -> Iterator[tuple[int, int, int, int]]:
    """Yield base offset, end offset, leader epoch and checksum of each batch."""
    if records is None:
        return
    unpack, at, size = _HEAD.unpack_from, 0, len(records)
    while at + _HEAD.size <= size:
        base, length, epoch, record_format, crc, delta = unpack(records, at)
        at += _BEFORE_LENGTH_ENDS + length
        # One that is cut off is fetched again; the client's parser refuses the answer that has a damaged one.
        if length < _LENGTH_MIN or at > size:
            return
        if record_format == _WITH_LEADER_EPOCH:
            yield base, base + delta + 1, epoch, crc


class FetchedBatches:
    """The batches fetched of one partition since it was followed from a position."""

    __slots__ = ("_anchors", "_ends", "latest_epoch")

    def __init__(self, position: int, anchor: PositionAnchor | None) -> None:
        """Take `anchor`: what lies below the position, if that is known."""
        self._ends = [position]
        # A batch may hold one record: tuples cost half of what objects do.
        self._anchors = [_as_tuple(anchor)]
        self.latest_epoch = anchor.leader_epoch if anchor is not None else -1

    def add(self, records: bytes | None) -> bool:
        """Add the next answer.

        Returns:
            Whether its leader epochs do not follow those before.
        """
        fell, latest, last_end = False, self.latest_epoch, self._ends[-1]
        for _, end, epoch, crc in _heads_in(records):
            if epoch != latest:
                fell = fell or epoch < latest
                latest = epoch
            if end > last_end:
                last_end = end
                self._ends.append(end)
                self._anchors.append((epoch, crc))
        self.latest_epoch = latest
        return fell

    def below(self, position: int) -> PositionAnchor | None:
        """Return what lies directly below a position that these fetches have led to; None when it is not known."""
        index = bisect_left(self._ends, position)
        found = self._anchors[index] if index < len(self._ends) else None
        return PositionAnchor(*found) if found is not None else None

    def forget_before(self, position: int) -> None:
        """Drop what lies before this position: nobody asks for it any more."""
        index = bisect_left(self._ends, position)
        del self._ends[:index], self._anchors[:index]
        if not self._ends:
            self._ends, self._anchors = [position], [None]


def _as_tuple(anchor: PositionAnchor | None) -> tuple[int, int] | None:
    return (anchor.leader_epoch, anchor.crc32c) if anchor is not None else None
