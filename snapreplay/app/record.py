"""Records as a reader delivers them, as a handler receives them, and as a handler sends them. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from snapreplay.errors import RecordId

K = TypeVar("K")
V = TypeVar("V")

Headers = Sequence[tuple[str, bytes]]


class InputRecord(Protocol):
    """A record as read from Kafka, undecoded. The client's own record class has this shape."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...  # milliseconds since the epoch
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


def id_of(record: InputRecord) -> RecordId:
    """Return an id that is unique and stable."""
    return RecordId(record.topic, record.partition, record.offset)


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """A plain `InputRecord`, made by the reader, the test harness, Spark and tests.

    `gc=False`, because with 20,000 of them the garbage collector stops everything for 6 to 8 ms (measured).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Record(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """One decoded input record, as a handler sees it. All of it is the same in every replay.

    Attributes:
        topic, partition, offset: its place in Kafka.
        timestamp_ms: milliseconds since the epoch, as the producer or the broker has set it.
        key, value: decoded by the codecs of the topic; None only if the codec accepts null.
        headers: (name, bytes), in order; a name may come twice. Empty if there are none.
    """

    app_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: Headers = ()

    @property
    def id(self) -> str:
        """Topic, partition and offset as one unique name: "payments-3-1042"."""
        return f"{self.topic}-{self.partition}-{self.offset}"

    @property
    def random(self) -> random.Random:
        """A generator seeded by app id and record: the same numbers in every replay. Each access makes a new one."""
        return random.Random(f"{self.app_id}/{self.id}")


class Output(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One encoded, staged output. Nothing leaves before the batch commits.

    Its msgpack is hashed into the increment: fields and their order are part of the format.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None  # None: chosen by the producer side, see `same_key`
    same_key: bool  # key bytes equal the input record's: keep its partition if the counts agree
    timestamp_ms: int | None  # None: the time of writing
    headers: tuple[tuple[str, bytes], ...] = ()


def span_of(records: Sequence[RawRecord]) -> str:
    """Name the first and the last one, for messages."""
    if not records:
        return "an empty batch"
    first, last = id_of(records[0]), id_of(records[-1])
    return str(first) if first == last else f"{first} to {last}"
