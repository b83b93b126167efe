"""The part of the input that a batch covers. Ranges are half-open: "end" means "next". Pure."""

from __future__ import annotations

import msgspec
from xxhash import xxh64_intdigest

from snapreplay.app.record import InputRecord


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
