"""Records as a reader delivers them, as a handler receives them, and as a handler sends them; the hash of what was
sent, and the trace context that an output takes from its input record. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from xxhash import xxh64

from snapreplay import engine
from snapreplay.app.names import place_of_input
from snapreplay.errors import RecordId
from snapreplay.state.steps import Steps

K = TypeVar("K")
V = TypeVar("V")

Headers = Sequence[tuple[str, bytes | None]]


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
    return RecordId(*place_of_input(record.topic, record.partition), record.offset)


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
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Record(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """A decoded input record, as a handler sees it. Everything in it is the same in every replay.

    Attributes:
        topic, partition, offset: its place in Kafka.
        timestamp_ms: milliseconds since the epoch, as set by the producer or the broker. For a record without a
            timestamp (−1 in Kafka): stream time, or −1 if no record had a timestamp yet.
        key, value: decoded by the codecs of the topic; None only if the codec accepts null.
        headers: (name, bytes or None) pairs, in order; a name may repeat. Empty if there are none. A name that is not
            UTF-8 has its bytes as `\\xff`.
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


class Output(msgspec.Struct, gc=False, array_like=True):
    """One encoded, staged output. Nothing leaves before the batch commits.

    Its msgpack is hashed into the increment: fields and their order are part of the format. `Out.take` sets
    `timestamp_ms` after that.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None  # None: chosen by the producer side, see `same_key`
    same_key: bool  # key bytes equal the input record's: keep its partition if the counts agree
    timestamp_ms: int | None  # None: the time of writing; while it is staged, none was given
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Carried(Output, gc=True, array_like=True, dict=True):
    """An output with the trace context of its input record.

    The context is not a field: the hash of what was sent is the same with and without it, so the setting may change
    between a batch and its replay.
    """

    carried: ClassVar[Headers] = ()

    @classmethod
    def of(cls, output: Output, context: Headers) -> Carried:
        made = cls(*(getattr(output, name) for name in cls.__struct_fields__))
        made.__dict__["carried"] = context
        return made


def counted_topics(outputs: Sequence[Output]) -> dict[str, int]:
    """Return how many of them go to each topic."""
    if isinstance(outputs, list | tuple):
        return dict(Counter(each.topic for each in outputs))
    return cast("engine.Outputs", outputs).counts()


def span_of(records: Sequence[RawRecord]) -> str:
    """Name the first and the last one, for messages."""
    if not records:
        return "an empty batch"
    first, last = id_of(records[0]), id_of(records[-1])
    return str(first) if first == last else f"{first} to {last}"


PIECE_OUTPUTS = 256
"""Outputs hashed in one step at most: 0.09 µs each with values of 80 bytes."""
PIECE_BYTES = 1 << 20
"""A larger piece makes the next ones smaller: a MiB takes about 0.2 ms. The first piece is a single output."""

_SHORT_ARRAY = 15  # msgpack: the header of an array has one byte up to so many elements, else three

packed = msgspec.msgpack.Encoder().encode


def hashing(outputs: Sequence[Output]) -> Steps[dict[str, int]]:
    """Hash what was sent to each output topic, in order: a replay must send the same. Topics without outputs are left
    out. The definition is in docs/FORMAT.md, "Outputs"."""
    topics = [output.topic for output in outputs]
    if not topics or topics.count(topics[0]) == len(topics):  # nearly always: no copy
        one = yield from _hashing(outputs)
        return {topics[0]: one} if topics else {}
    by_topic: dict[str, list[Output]] = {topic: [] for topic in topics}
    for output in outputs:
        by_topic[output.topic].append(output)
    found = {}
    for topic, sent in by_topic.items():
        found[topic] = yield from _hashing(sent)
    return found


def _hashing(outputs: Sequence[Output]) -> Steps[int]:
    """Hash the joined msgpack of the outputs. The headers of the pieces do not count, so the cut does not matter."""
    total, start, size = xxh64(), 0, 1
    while start < len(outputs):
        piece = outputs[start : start + size]
        data = packed(piece)
        total.update(memoryview(data)[1 if len(piece) <= _SHORT_ARRAY else 3 :])
        start += len(piece)
        size = max(1, min(PIECE_OUTPUTS, 2 * size, len(piece) * PIECE_BYTES // len(data)))
        yield
    return total.intdigest()


NAMES = ("traceparent", "tracestate")


def context_of(headers: Headers) -> Headers:
    """Return the headers that are the trace context; none without a `traceparent`."""
    found = tuple(each for each in headers if each[0] in NAMES and each[1])
    return found if any(name == NAMES[0] for name, _ in found) else ()


def carrying(handler: Callable[..., Any], contexts: list[Headers]) -> Callable[..., Any]:
    """Return a handler whose outputs carry the context of their record. Each context is added to `contexts`."""

    def carried(record: Any, state: Any, out: Any) -> Any:
        context = context_of(record.headers)
        sent_before = len(out.staged)
        answer = handler(record, state, out)
        if context:
            contexts.append(context)
            out.carry(sent_before, context)
        return answer

    return carried
