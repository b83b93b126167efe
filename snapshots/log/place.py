"""The partition of a topic, and the decoding of an own record with its place in the errors. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from snapreplay.app.record import Headers, InputRecord
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import KIND_HEADER, MAGIC, decode


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Write it as Kafka's tools do, "payments-3"."""
        return f"{self.topic}-{self.partition}"


def place_of(record: InputRecord) -> TopicPartition:
    """Return the partition that a record lies in."""
    return TopicPartition(record.topic, record.partition)


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
    """
    where = f"{log} offset {offset}"
    facts: dict[str, Any] = {"topic": log.topic, "partition": log.partition, "offset": offset}
    try:
        entry = decode(value)
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **facts) from error
    except UnknownFormatError as error:
        raise UnknownFormatError(f"{where}: {error.message}", hint=error.hint, **facts) from error
    if not isinstance(entry, kind):
        raise DamagedError(f"{where} holds a {type(entry).__name__}, not a {kind.__name__}", **facts)
    return entry
