"""The identity of a record, which shows whether an input is still the same. Pure."""

from __future__ import annotations

from xxhash import xxh64_intdigest

from snapreplay.app.ranges import Anchor
from snapreplay.app.record import InputRecord


def anchor_of(record: InputRecord) -> Anchor:
    """Return the record's anchor. Its hash of key and value tells inputs with equal timestamps and lengths apart."""
    framed = _framed(record.key) + _framed(record.value)
    return Anchor(record.offset, record.timestamp, xxh64_intdigest(framed))


def _framed(data: bytes | None) -> bytes:
    """Put the length in front, as Kafka's protocol does, so that ("a", "bc") and ("ab", "c") differ."""
    if data is None:
        return (-1).to_bytes(4, "big", signed=True)
    return len(data).to_bytes(4, "big", signed=True) + data
