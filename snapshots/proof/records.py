"""A record of the own topics as an audit sees it: whatever bytes it has, there is an answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.format.envelope import (
    FORMAT_VERSION,
    HEADER_BYTES,
    KIND_HEADER,
    MAGIC,
    RecordKind,
    decode,
)
from snapreplay.snapshots.format.records import LogEntry
from snapreplay.snapshots.format.seal import SealRefused, Seals

Slices = Iterable[Sequence[InputRecord]]
"""Records of one partition in the order of their offsets, in slices that are never empty."""


class Condition(Enum):
    """The condition of a record: can it be read?"""

    OK = "ok"
    DAMAGED = "damaged"  # the envelope is not what was written
    UNKNOWN = "unknown"  # the envelope is whole, its version or its body is none of this build's
    FOREIGN = "foreign"  # nobody here wrote it
    REFUSED = "refused"  # it can be read, but its seal is missing or wrong


class Judged(NamedTuple):
    """A record as it was judged. `kind`: as the record says, None when it says nothing. `entry`: of an OK or
    REFUSED record, decoded."""

    offset: int
    value: bytes
    condition: Condition
    kind: int | None
    entry: LogEntry | None = None
    problem: str = ""


def judge(record: InputRecord, seals: Seals | None = None, *, decoded: bool = True) -> Judged:
    """Judge a record.

    Args:
        seals: the keys; None: seals are not looked at.
        decoded: else the body stays closed, and an OK record has no entry.

    Raises:
        SealRefused: there is no key at all, and the record is sealed.
    """
    value = record.value or b""
    kind = value[5] if len(value) > 5 else None
    condition = _condition(value, record)
    if condition is not Condition.OK or not decoded:
        return Judged(record.offset, value, condition, kind)
    try:
        judged = Judged(record.offset, value, condition, kind, decode(value))
    except SnapreplayError as error:
        return Judged(record.offset, value, Condition.UNKNOWN, kind, None, error.message)
    refusal = _refusal(record, seals)
    return (
        judged if refusal is None else judged._replace(condition=Condition.REFUSED, problem=refusal)
    )


def _refusal(record: InputRecord, seals: Seals | None) -> str | None:
    if seals is None:
        return None
    where = f"{record.topic}-{record.partition} offset {record.offset}"
    try:
        seals.check(record.value or b"", record.partition, where)
    except SealRefused as error:
        if not seals.keys:
            raise
        return error.message
    return None


def _condition(value: bytes, record: InputRecord) -> Condition:
    if value.startswith(MAGIC) and len(value) >= HEADER_BYTES:
        view = memoryview(value)
        if crc32(view[HEADER_BYTES:], crc32(view[4:8])) == int.from_bytes(value[8:12], "big"):
            return Condition.OK if value[4] == FORMAT_VERSION else Condition.UNKNOWN
    if value.startswith(MAGIC) or any(name == KIND_HEADER for name, _ in record.headers):
        return Condition.DAMAGED
    return Condition.FOREIGN


CLAIM, CHANGES, INCREMENT = RecordKind.CLAIM, RecordKind.CHANGES, RecordKind.INCREMENT
CHUNK, MANIFEST = RecordKind.CHUNK, RecordKind.MANIFEST
