"""The identity of a record, so that "is this still the same input?" has an answer. Pure."""

from __future__ import annotations

from xxhash import xxh64_intdigest

from snapreplay.app.ranges import Anchor
from snapreplay.app.record import InputRecord


def anchor_of(record: InputRecord) -> Anchor:
    """Of key and value, so that two inputs of equal timestamps and lengths still differ."""
    framed = _framed(record.key) + _framed(record.value)
    return Anchor(record.offset, record.timestamp, xxh64_intdigest(framed))


def _framed(data: bytes | None) -> bytes:
    """Behind a length, as Kafka's protocol writes it: ("a", "bc") and ("ab", "c") are not the same
    record.
    """
    if data is None:
        return (-1).to_bytes(4, "big", signed=True)
    return len(data).to_bytes(4, "big", signed=True) + data
