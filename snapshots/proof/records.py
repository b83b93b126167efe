"""The logs that are read, between offsets that are fixed before, and a record of them as an audit sees it: any
bytes have an answer. Pure but for what `Logs` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol
from zlib import crc32

import msgspec

from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.format.envelope import FORMAT_VERSION, HEADER_BYTES, MAGIC, decode
from snapreplay.snapshots.format.records import LogEntry
from snapreplay.snapshots.log.reading import is_ours

Slices = Iterable[Sequence[InputRecord]]
"""Records of one partition in the order of their offsets, in slices that are never empty."""


class Moment(msgspec.Struct, frozen=True):
    """A partition's two logs at one moment: half-open ranges of offsets, `start <= end`."""

    partition: int
    log_start: int
    log_end: int
    snapshots_start: int
    snapshots_end: int


class Logs(Protocol):
    """The two logs of one partition, and its inputs."""

    def increments(self, start_offset: int, end_offset: int) -> Slices:
        """Read committed records only."""

    def snapshots(self, start_offset: int, end_offset: int) -> Slices:
        """Read all records: they are written outside any transaction."""

    def input(self, topic: str, start_offset: int, end_offset: int) -> Slices:
        """Read committed records of an input."""


class Condition(Enum):
    """The condition of a record: can it be read?"""

    OK = "ok"
    DAMAGED = "damaged"  # the envelope is not what was written
    UNKNOWN = "unknown"  # the envelope is whole, its version or its body is none of this build's
    FOREIGN = "foreign"  # snapreplay did not write it


class Judged(NamedTuple):
    """A record as it was judged. `kind`: as the record says, None when it says nothing. `entry`: of an OK
    record, decoded."""

    offset: int
    value: bytes
    condition: Condition
    kind: int | None
    entry: LogEntry | None = None
    problem: str = ""


def judge(record: InputRecord) -> Judged:
    value = record.value or b""
    kind = value[5] if len(value) > 5 else None
    condition = _condition(value, record)
    if condition is not Condition.OK:
        return Judged(record.offset, value, condition, kind)
    try:
        return Judged(record.offset, value, condition, kind, decode(value))
    except SnapreplayError as error:
        return Judged(record.offset, value, Condition.UNKNOWN, kind, None, error.message)


def _condition(value: bytes, record: InputRecord) -> Condition:
    if value.startswith(MAGIC) and len(value) >= HEADER_BYTES:
        view = memoryview(value)
        if crc32(view[HEADER_BYTES:], crc32(view[4:8])) == int.from_bytes(value[8:12], "big"):
            return Condition.OK if value[4] == FORMAT_VERSION else Condition.UNKNOWN
    return Condition.DAMAGED if is_ours(value, record.headers) else Condition.FOREIGN
