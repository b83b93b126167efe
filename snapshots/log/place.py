"""Names a partition of a topic, and one of an own topic with the keys of its records. Pure."""

from __future__ import annotations

from typing import NamedTuple

from snapreplay.app.record import InputRecord
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
