"""The records in the bytes of a fetch. Pure.

A batch of format 2 is read by the compiled engine, else by aiokafka's parser; older formats always by that. What both
refuse for the name of a header is read here. Aborted transactions and markers are left out as the Java client does.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import codec as codecs
from aiokafka.errors import CorruptRecordException, KafkaError, UnsupportedCodecError
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c, decode_varint
from zstandard import ZstdDecompressor, ZstdError

from snapreplay import engine
from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import RawRecord
from snapreplay.errors import described
from snapreplay.service.ports import LogBatch, TopicPartition

LOT_RECORDS = 2048
"""Records that are made at once: a quarter of a millisecond. A compressed batch may hold millions."""
INFLATED_BYTES_MAX = 256 << 20
"""A batch of 1 MiB may hold a thousand times as much."""

# Of a record batch: base offset, length of what follows, leader epoch, format, checksum, attributes, last offset delta,
# first and largest timestamp, producer id, producer epoch and first sequence, number of records.
_HEAD = struct.Struct(">qiibIhiqqq6xi")
_OF_ANY_FORMAT = struct.Struct(">qi4xb")
_LENGTH, BEFORE_LENGTH_ENDS = struct.Struct(">i"), 12  # bytes
_LENGTH_MIN, _OLD_LENGTH_MIN = _HEAD.size - BEFORE_LENGTH_ENDS, 14
_CHECKED_FROM, _ATTRIBUTES_AT = 21, 22  # the second byte of the attributes
FORMAT = 2  # since Kafka 0.11
_CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_HAS_DELETE_HORIZON = 0x40  # KIP-534: the cleaner sets it with the base timestamp
_ABORT_MARKER = b"\0\0"
NO_EPOCH = _NO_TIMESTAMP = -1
_PIECE_BYTES = 1 << 20


class TooInflated(KafkaError):
    """A batch that decompresses to more than `INFLATED_BYTES_MAX`."""


class Head(NamedTuple):
    """The head of a record batch, whose bytes are `data[begins_at:ends_at]`. Of an older format than 2, its place and
    offsets."""

    begins_at: int
    ends_at: int
    base_offset: int
    next_offset: int  # of the batch behind it
    leader_epoch: int = NO_EPOCH
    record_format: int = FORMAT
    checksum: int = 0
    attributes: int = 0
    first_ms: int = 0
    largest_ms: int = 0
    producer_id: int = -1
    record_count: int = 0

    @property
    def is_cleaned(self) -> bool:
        """Whether the log cleaner has written it again. No producer leaves out offsets: brokers refuse that."""
        is_dated = bool(self.attributes & _HAS_DELETE_HORIZON)
        return is_dated or self.record_count < self.next_offset - self.base_offset


def heads_in(data: bytes) -> tuple[list[Head], str]:
    """Return the heads of the whole batches, and why the bytes behind them cannot be one; "": they are cut off, or
    there are none."""
    heads: list[Head] = []
    at, size, last_end = 0, len(data), -1
    while at + _OF_ANY_FORMAT.size <= size:
        base, length, record_format = _OF_ANY_FORMAT.unpack_from(data, at)
        end = at + BEFORE_LENGTH_ENDS + length
        if length < (_LENGTH_MIN if record_format == FORMAT else _OLD_LENGTH_MIN):
            return heads, f"a length of {length} bytes"
        if end > size:
            break
        if record_format == FORMAT:
            _, _, epoch, _, crc, attributes, delta, first_ms, largest_ms, producer_id, count = _HEAD.unpack_from(
                data, at
            )
            times = first_ms, largest_ms
            head = Head(at, end, base, base + delta + 1, epoch, FORMAT, crc, attributes, *times, producer_id, count)
        else:
            head = Head(at, end, base, base + 1, record_format=record_format)
        if base < last_end or head.next_offset <= base:
            return heads, f"offsets {base} to {head.next_offset - 1} behind {last_end - 1}"
        heads.append(head)
        at, last_end = end, head.next_offset
    return heads, ""


def batches_in(data: bytes | None) -> Iterator[LogBatch]:
    """Yield the whole batches that have a leader epoch, up to one whose length is damaged."""
    for head in heads_in(data or b"")[0]:
        if head.record_format == FORMAT:
            anchor = PositionAnchor(head.leader_epoch, head.checksum)
            yield LogBatch(head.base_offset, head.next_offset, anchor, head.is_cleaned)


class FetchedBatches:
    """The batches fetched of one partition since it was followed from a position."""

    __slots__ = ("_anchors", "_ends", "latest_epoch")

    def __init__(self, position: int, anchor: PositionAnchor | None) -> None:
        """Take `anchor`: what lies below the position, if that is known."""
        self._ends = [position]
        # A batch may hold one record: tuples cost half of what objects do.
        self._anchors = [None if anchor is None else (anchor.leader_epoch, anchor.crc32c)]
        self.latest_epoch = anchor.leader_epoch if anchor is not None else NO_EPOCH

    def add(self, heads: Sequence[Head]) -> bool:
        """Add the next answer.

        Returns:
            Whether its leader epochs do not follow those before.
        """
        fell, latest, last_end = False, self.latest_epoch, self._ends[-1]
        for head in heads:
            epoch, end = head.leader_epoch, head.next_offset
            if head.record_format != FORMAT:
                continue
            if epoch != latest:
                fell = fell or epoch < latest
                latest = epoch
            if end > last_end:
                last_end = end
                self._ends.append(end)
                self._anchors.append((epoch, head.checksum))
        self.latest_epoch = latest
        return fell

    def below(self, position: int) -> PositionAnchor | None:
        """Return what lies directly below a position that these fetches have led to; None when it is not known."""
        index = bisect_left(self._ends, position)
        found = self._anchors[index] if index < len(self._ends) else None
        return PositionAnchor(*found) if found is not None else None

    def forget_before(self, position: int) -> None:
        """Drop what lies before this position: it is not asked for any more."""
        index = bisect_left(self._ends, position)
        del self._ends[:index], self._anchors[:index]
        if not self._ends:
            self._ends, self._anchors = [position], [None]

    def forget_from(self, position: int) -> None:
        """Drop the batches that end behind this position: they are fetched again, because one of them is damaged."""
        index = bisect_right(self._ends, position)
        del self._ends[index:], self._anchors[index:]
        if not self._ends:
            self._ends, self._anchors = [position], [None]
        last = self._anchors[-1]
        self.latest_epoch = last[0] if last is not None else NO_EPOCH


class Records:
    """The records of one answer for a partition, made when they are taken.

    Attributes:
        heads: of its whole batches.
        damage: why there is no batch behind them; empty: it is only cut off.
        position: the next offset behind what was taken; passes markers and aborted records.
        is_over: whether everything was taken.
    """

    def __init__(
        self,
        partition: TopicPartition,
        data: bytes,
        aborted: Sequence[tuple[int, int]],
        position: int,
        *,
        read_committed: bool = True,
        checks_crcs: bool = True,
    ) -> None:
        """Take `aborted`: the producer id and first offset of each aborted transaction that overlaps these bytes."""
        self.heads, self.damage = heads_in(data)
        self.position = position
        self.is_over = False
        self._partition, self._data = partition, data
        self._read_committed, self._checks_crcs = read_committed, checks_crcs
        self._aborted = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborted_producers: set[int] = set()
        self._lot: Sequence[RawRecord] = ()
        self._taken = 0  # of the lot
        self._lots = self._by_batch()
        self._error: KafkaError | None = None

    @property
    def next_offset(self) -> int:
        """The position behind its last whole batch."""
        return max(self.position, self.heads[-1].next_offset) if self.heads else self.position

    def take(self, count: int) -> list[RawRecord]:
        """Return the next records; fewer, if the answer ends or an error follows.

        Raises:
            CorruptRecordException: the batch at the position is damaged. Every later call raises it, too.
            UnsupportedCodecError, TooInflated: it cannot be decompressed.
        """
        taken: list[RawRecord] = []
        while len(taken) < count and not self.is_over:
            if self._taken == len(self._lot) and not self._advance(bool(taken)):
                break
            part = self._lot[self._taken : self._taken + count - len(taken)]
            if part:
                taken += part
                self._taken += len(part)
                self.position = part[-1].offset + 1
        return taken

    def _advance(self, has_taken: bool) -> bool:  # noqa: FBT001 - a fact about its only caller
        if self._error is None:
            try:
                lot = next(self._lots, None)
            except KafkaError as error:
                self._error = error
            else:
                self._lot, self._taken, self.is_over = lot or (), 0, lot is None
                return lot is not None
        if not has_taken:
            raise self._error
        return False

    def _by_batch(self) -> Iterator[Sequence[RawRecord]]:
        for head in self.heads:
            if head.record_format > FORMAT or head.record_format < 0:
                raise CorruptRecordException(f"there is no record format {head.record_format}")
            if head.record_format < FORMAT:
                yield from self._by_client(self._data[head.begins_at : head.ends_at])
            else:
                if self._checks_crcs and _crc32c(self._data, head) != head.checksum:
                    raise CorruptRecordException("its checksum is wrong")
                if not self._is_left_out(head):
                    yield from self._records_of(head)
            self.position = max(self.position, head.next_offset)
        if self.damage:
            raise CorruptRecordException(self.damage)

    def _is_left_out(self, head: Head) -> bool:
        """Say whether a batch has nothing for a reader: it is a marker, or its transaction was aborted."""
        if self._read_committed:
            while self._aborted and self._aborted[-1][1] <= head.base_offset:
                self._aborted_producers.add(self._aborted.pop()[0])
        is_aborted = head.producer_id in self._aborted_producers
        if head.attributes & _CONTROL:
            if is_aborted and self._is_abort_marker(head):
                self._aborted_producers.discard(head.producer_id)
            return True
        return is_aborted and bool(head.attributes & _TRANSACTIONAL)

    def _is_abort_marker(self, head: Head) -> bool:
        """Say whether this control batch ends an aborted transaction. One without records does not, as for Kafka's own
        clients: the cleaner has removed its marker, after all that was aborted. It keeps the batch while that is the
        last of its producer, and since KIP-890 each transaction has a producer epoch of its own."""
        marker = next(_records_in(_inflated(self._data, head), head, self._partition), None)
        return marker is not None and (marker.key or b"")[2:4] == _ABORT_MARKER

    def _records_of(self, head: Head) -> Iterator[Sequence[RawRecord]]:
        data, begin, end = self._data, head.begins_at + _HEAD.size, head.ends_at
        if head.attributes & _CODEC_MASK:
            data = _inflated(data, head)
            begin, end = 0, len(data)
        if engine.compiled is not None and (yield from self._by_engine(engine.compiled, head, data, begin, end)):
            return
        try:
            yield from self._by_client(_plain_batch(self._data, head, data[begin:end]))
        except UnicodeDecodeError:  # the name of a header
            yield from _lots(_records_in(data[begin:end], head, self._partition), self.position)

    def _by_engine(
        self, compiled: engine.Compiled, head: Head, data: bytes, begin: int, end: int
    ) -> Generator[Sequence[RawRecord], None, bool]:
        """Yield what the engine makes of a batch; return whether that is all. Something unusual is for another
        parser."""
        at_ms = head.largest_ms if head.attributes & _LOG_APPEND_TIME else None
        rest = (head.base_offset, head.first_ms, at_ms, *self._partition, self.position)
        left = head.record_count
        while left > 0:
            found = compiled.records(data, begin, end, min(left, LOT_RECORDS), *rest)
            if found is None:
                return False
            lot, begin = found
            yield lot
            left -= LOT_RECORDS
        return begin == end

    def _by_client(self, data: bytes) -> Iterator[Sequence[RawRecord]]:
        """Yield what aiokafka's parser makes of one batch."""
        position, lot = self.position, list[RawRecord]()
        try:
            batch: Any = MemoryRecords(data).next_batch()
            is_old = data[16] < FORMAT
            if is_old and self._checks_crcs and not batch.validate_crc():
                raise CorruptRecordException("its checksum is wrong")
            for record in batch:
                if record.offset < position:  # also where offsets do not rise
                    continue
                position = record.offset + 1
                at_ms = _NO_TIMESTAMP if record.timestamp is None else record.timestamp  # format 0 has none
                named = tuple(record.headers) if record.headers else ()
                lot.append(RawRecord(*self._partition, record.offset, at_ms, record.key, record.value, named))
                if len(lot) == LOT_RECORDS:
                    yield lot
                    lot = []
        except Exception as error:  # codecs and parsers raise any error: it is raised again by name
            yield lot
            cause = error.__cause__ if isinstance(error, CorruptRecordException) else error
            if isinstance(cause, UnicodeDecodeError):  # the parser without its C extension wraps it
                raise cause from None
            raise _damage(error) from error
        yield lot


def _lots(records: Iterator[RawRecord], position: int) -> Iterator[Sequence[RawRecord]]:
    lot: list[RawRecord] = []
    try:
        for record in records:
            if record.offset < position:
                continue
            position = record.offset + 1
            lot.append(record)
            if len(lot) == LOT_RECORDS:
                yield lot
                lot = []
    except CorruptRecordException:
        yield lot
        raise
    yield lot


def _damage(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else CorruptRecordException(described(error))


def _crc32c(data: bytes, head: Head) -> int | None:
    begin, end = head.begins_at + _CHECKED_FROM, head.ends_at
    if engine.compiled is not None:
        return engine.compiled.crc32c(data, begin, end)
    return int(calc_crc32c(data[begin:end]))


def _plain_batch(data: bytes, head: Head, body: bytes) -> bytes:
    """Return a batch as if it had not been compressed: aiokafka's parser would decompress it without a limit."""
    plain = bytearray(data[head.begins_at : head.begins_at + _HEAD.size])
    _LENGTH.pack_into(plain, 8, _LENGTH_MIN + len(body))
    plain[_ATTRIBUTES_AT] &= ~_CODEC_MASK
    return bytes(plain) + body


def _inflated(data: bytes, head: Head) -> bytes:
    """Return the records of a batch as bytes, decompressed.

    Raises:
        CorruptRecordException, UnsupportedCodecError, TooInflated: that is not possible.
    """
    body, number = data[head.begins_at + _HEAD.size : head.ends_at], head.attributes & _CODEC_MASK
    if not number or not body:
        return body
    if number not in _CODECS:
        raise UnsupportedCodecError(f"there is no compression codec {number}")
    name, is_there, decompress = _CODECS[number]
    if not is_there():
        raise UnsupportedCodecError(f"the library for {name} is not installed")
    try:
        return decompress(body)
    except KafkaError:
        raise
    except Exception as error:  # codecs and parsers raise any error: it is raised again by name
        raise CorruptRecordException(f"{name} fails: {described(error)}") from error


def _gunzip(data: bytes) -> bytes:
    found, left = b"", data
    while left:
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        found += member.decompress(left, INFLATED_BYTES_MAX + 1 - len(found))
        if len(found) > INFLATED_BYTES_MAX:
            raise TooInflated(f"it decompresses to more than {INFLATED_BYTES_MAX >> 20} MiB")
        if not member.eof:
            raise EOFError("it is cut off")
        left = member.unused_data
    return found


def _unzstd(data: bytes) -> bytes:
    found = bytearray()
    with ZstdDecompressor().stream_reader(data, read_across_frames=True) as pieces:
        while piece := pieces.read(_PIECE_BYTES):
            found += piece
            if len(found) > INFLATED_BYTES_MAX:
                raise TooInflated(f"it decompresses to more than {INFLATED_BYTES_MAX >> 20} MiB")
    if not found:
        raise ZstdError("it is cut off")
    return bytes(found)


# The others inflate at most 255 times.
_CODECS: Mapping[int, tuple[str, Callable[[], bool], Callable[[bytes], bytes]]] = {
    1: ("gzip", codecs.has_gzip, _gunzip),
    2: ("snappy", codecs.has_snappy, codecs.snappy_decode),
    3: ("lz4", codecs.has_lz4, codecs.lz4_decode),
    4: ("zstd", lambda: True, _unzstd),
}


def _records_in(data: bytes, head: Head, partition: TopicPartition) -> Iterator[RawRecord]:
    """Yield the records of a batch.

    Raises:
        CorruptRecordException: it is not whole.
    """
    at = 0
    try:
        for _ in range(head.record_count):
            record, at = _record(data, at, head, partition)
            yield record
    except (IndexError, ValueError) as error:
        raise CorruptRecordException(f"it is not whole: {error}") from error


def _record(data: bytes, at: int, head: Head, partition: TopicPartition) -> tuple[RawRecord, int]:
    length, at = decode_varint(data, at)
    end = at + length
    delta_ms, at = decode_varint(data, at + 1)  # behind the attributes, of which no bit is used
    offset_delta, at = decode_varint(data, at)
    key, at = _data(data, at)
    value, at = _data(data, at)
    count, at = decode_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _data(data, at)
        content, at = _data(data, at)
        headers.append(((name or b"").decode(errors="backslashreplace"), content))
    if at != end:
        raise ValueError(f"a record of {length} bytes ends {end - at} bytes too early")
    at_ms = head.largest_ms if head.attributes & _LOG_APPEND_TIME else head.first_ms + delta_ms
    return RawRecord(*partition, head.base_offset + offset_delta, at_ms, key, value, tuple(headers)), end


def _data(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise ValueError("it ends in the middle of a record")
    return data[at : at + size], at + size
