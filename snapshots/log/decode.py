"""Decodes a record of our topics; every error names topic, partition and offset."""

from __future__ import annotations

from typing import Any, TypeVar

from snapreplay.app.record import Headers
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import KIND_HEADER, MAGIC, decode
from snapreplay.snapshots.log.place import SealedLog, TopicPartition

T = TypeVar("T")


def is_ours(value: bytes, headers: Headers) -> bool:
    """Say whether a record claims to be of our format. A foreign one is left alone. A damaged one is not foreign:
    its header still says what it was when the value's first bytes are lost."""
    return value.startswith(MAGIC) or any(name == KIND_HEADER for name, _ in headers)


def decode_as(kind: type[T], value: bytes, log: TopicPartition, offset: int) -> T:
    """Decode the record as `kind`.

    Raises:
        DamagedError: checksum, length or structure is wrong, or it is another kind of record.
        UnknownFormatError: written by a newer version.
        SealRefused: its seal is missing or wrong.
    """
    where = f"{log} offset {offset}"
    facts: dict[str, Any] = {"topic": log.topic, "partition": log.partition, "offset": offset}
    try:
        entry = decode(value)
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **facts) from error
    except UnknownFormatError as error:
        raise UnknownFormatError(f"{where}: {error.message}", hint=error.hint, **facts) from error
    if isinstance(log, SealedLog):
        log.seals.check(value, log.partition, where)
    if not isinstance(entry, kind):
        raise DamagedError(
            f"{where} holds a {type(entry).__name__}, not a {kind.__name__}", **facts
        )
    return entry
