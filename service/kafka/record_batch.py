"""The records of one fetched batch: by the compiled engine; and in Python for batches with a header name that is not
UTF-8, which the client cannot decode.

Brokers take any bytes as a name. Java's client shows U+FFFD for those that are not UTF-8; here they are shown as Python
writes them, `\\xff`, so that two such names stay different.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.errors import CorruptRecordException
from aiokafka.record.util import decode_varint

from snapreplay.app.record import RawRecord
from snapreplay.engine import Compiled

# Base offset, length of what follows, format, checksum; attributes, last offset delta, first and largest timestamp,
# producer id, count.
_HEAD = struct.Struct(">qi4xbIhiqqq6xi")
_BEFORE_LENGTH_ENDS, _CHECKED_FROM, _LENGTH_MIN = 12, 21, 26  # bytes; the last of the oldest format
_CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_CODECS: dict[int, Callable[[bytes], bytes]] = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
_FIRST_FORMAT_WITH_HEADERS = 2


class Batch(NamedTuple):
    """A batch of a fetch: its records, the offset behind it, and where the next batch begins in the fetched bytes."""

    records: list[RawRecord]
    next_offset: int
    ends_at: int


class Head(NamedTuple):
    """The head of a batch of format 2, whose bytes are `data[begins_at:ends_at]`."""

    begins_at: int
    ends_at: int
    base_offset: int
    next_offset: int  # of the batch behind it
    checksum: int
    attributes: int
    first_ms: int
    largest_ms: int
    producer_id: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)


def heads_in(data: bytes) -> Iterator[Head | slice]:
    """Yield the heads of the batches in an answer. Of another format, and of what is no batch, only the place."""
    at = 0
    while at + _HEAD.size <= len(data):
        base_offset, length, version, checksum, attributes, last_delta, *rest = _HEAD.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if not at + _LENGTH_MIN <= end <= len(data):
            break
        if version == _FIRST_FORMAT_WITH_HEADERS and end >= at + _HEAD.size:
            yield Head(at, end, base_offset, base_offset + last_delta + 1, checksum, attributes, *rest)
        else:
            yield slice(at, end)
        at = end
    if at < len(data):
        yield slice(at, len(data))


LOT_RECORDS = 2048
"""Records that the engine makes at once: a quarter of a millisecond. A compressed batch may hold millions."""


def lots_by(
    compiled: Compiled, data: bytes, head: Head, source: tuple[str, int], from_offset: int
) -> Iterator[list[RawRecord] | None]:
    """Yield the records of a batch from this offset on; None, as the last, if another parser must read what is left:
    something is unusual. Control records are not for here."""
    begin, end, codec = head.begins_at + _HEAD.size, head.ends_at, head.attributes & _CODEC_MASK
    if codec:
        try:
            data = _CODECS[codec](data[begin:end])
        except Exception:  # noqa: BLE001 - the other parser says what it is
            yield None
            return
        begin, end = 0, len(data)
    at_ms = head.largest_ms if head.attributes & _LOG_APPEND_TIME else None
    rest = (head.base_offset, head.first_ms, at_ms, *source, from_offset, RawRecord)
    left = head.record_count
    while left > 0:
        found = compiled.records(data, begin, end, min(left, LOT_RECORDS), *rest)
        if found is None:
            break
        records, begin = found
        yield records
        left -= LOT_RECORDS
    if begin != end:
        yield None


def is_intact(compiled: Compiled, data: bytes, head: Head) -> bool:
    return compiled.crc32c(data, head.begins_at + _CHECKED_FROM, head.ends_at) == head.checksum


def batch_holding(data: bytes, offset: int, topic: str, partition: int) -> Batch:
    """Return the first batch that ends behind this offset.

    Raises:
        CorruptRecordException: it is not whole, or there is none.
    """
    at = 0
    try:
        while True:
            base_offset, length, version, _, attributes, last_delta, *rest = _HEAD.unpack_from(data, at)
            end = at + _BEFORE_LENGTH_ENDS + length
            if base_offset + last_delta >= offset and version == _FIRST_FORMAT_WITH_HEADERS:
                break
            at = end
        body = data[at + _HEAD.size : end]
        codec = _CODECS.get(attributes & _CODEC_MASK)
        if codec is not None:
            body = codec(body)
        first_ms, largest_ms, _, count = rest
        at_ms = largest_ms if attributes & _LOG_APPEND_TIME else None
        records, position = [], 0
        for _ in range(count):
            record, position = _record(body, position, topic, partition, base_offset, first_ms, at_ms)
            records.append(record)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptRecordException(
            f"the batch of {topic}-{partition} offset {offset} is not whole: {error}"
        ) from error
    return Batch(records, base_offset + last_delta + 1, end)


def _record(
    body: bytes, at: int, topic: str, partition: int, base_offset: int, first_ms: int, at_ms: int | None
) -> tuple[RawRecord, int]:
    length, at = decode_varint(body, at)
    end = at + length
    delta_ms, at = decode_varint(body, at + 1)  # behind the attributes, of which no bit is used
    offset_delta, at = decode_varint(body, at)
    key, at = _data(body, at)
    value, at = _data(body, at)
    count, at = decode_varint(body, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _data(body, at)
        data, at = _data(body, at)
        headers.append(((name or b"").decode(errors="backslashreplace"), data))
    if at != end:
        raise ValueError(f"a record of {length} bytes ends {end - at} bytes too early")
    timestamp_ms = first_ms + delta_ms if at_ms is None else at_ms
    return RawRecord(topic, partition, base_offset + offset_delta, timestamp_ms, key, value, tuple(headers)), end


def _data(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(body, at)
    if size < 0:
        return None, at
    if at + size > len(body):
        raise ValueError("it ends in the middle of a record")
    return body[at : at + size], at + size
