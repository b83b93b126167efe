"""Names a partition of a topic, and one of an own topic with the keys of its records, which it decodes. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from snapreplay.app.record import Headers, InputRecord
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import KIND_HEADER, MAGIC, decode
from snapreplay.snapshots.format.seal import Seals


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Write it as Kafka's tools do, "payments-3"."""
        return f"{self.topic}-{self.partition}"


class SealedLog(TopicPartition):
    """One partition of an own topic, with the keys of its records: what is decoded from it is checked."""

    seals: Seals

    @classmethod
    def of(cls, topic: str, partition: int, seals: Seals) -> SealedLog:
        """Make one; it is equal to the partition without keys."""
        made = cls(topic, partition)
        made.seals = seals
        return made


def place_of(record: InputRecord, seals: Seals | None) -> TopicPartition:
    """Return the partition that a record lies in. `seals`: the keys; None: seals are not looked at."""
    if seals is None:
        return TopicPartition(record.topic, record.partition)
    return SealedLog.of(record.topic, record.partition, seals)


def seals_of(place: TopicPartition) -> Seals | None:
    """Return the keys of a partition of an own topic; None where seals are not looked at."""
    return place.seals if isinstance(place, SealedLog) else None


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
        raise DamagedError(f"{where} holds a {type(entry).__name__}, not a {kind.__name__}", **facts)
    return entry
