"""The partitions of topics, the decoding of own records with their place in the errors, and readings: they ask for
records, and who can read sends them, a service without blocking, a job by waiting.

A `Reading` is a generator. It yields a `Source` to get the next records of it, a function to get its result, which
may be computed in a thread, and None after a step of work. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from snapreplay.app.names import BROADCAST, place_of_input
from snapreplay.app.record import Headers, InputRecord, RawRecord
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import KIND_HEADER, MAGIC, decode

T = TypeVar("T")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Write it as Kafka's tools do, "payments-3"; also the input "rates/2" of a broadcast table, as "rates-2"."""
        topic, partition = place_of_input(*self)
        return f"{topic}-{partition}"

    @property
    def real(self) -> TopicPartition:
        """The partition in Kafka: an input of a broadcast table is the same one in every partition of the app."""
        return TopicPartition(*place_of_input(*self)) if BROADCAST in self.topic else self


def place_of(record: InputRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


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


def of_input(records: Sequence[InputRecord], name: str) -> Sequence[InputRecord]:
    """Return the records as those of this input: the topic of a broadcast table's record is "rates/2" then."""
    if BROADCAST not in name:
        return records
    return [RawRecord(name, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


Slice = Sequence[InputRecord]
"""Records of one partition in the order of their offsets; empty at the end only."""


class Source(NamedTuple):
    """The records of a partition of `topic` with start_offset <= offset < end_offset, read forward once. Own topics and
    inputs have different names, and the partition is always the same."""

    topic: str
    start_offset: int
    end_offset: int


Reading = Generator[Source | Callable[[], Any] | None, Any, T]
"""Must be run to the end, which returns the result."""


class Waiting:
    """Runs readings one after the other without a pause; each continues where the last one left its source."""

    def __init__(self, read: Callable[[Source], Iterable[Slice]]) -> None:
        self._read = read
        self._cursors: dict[Source, Iterator[Slice]] = {}

    def all_of(self, steps: Reading[T]) -> T:
        """Run every step and return the result. Raises what a step or `read` raises."""
        answer: Any = None
        while True:
            try:
                wanted = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(wanted, Source):
                if wanted not in self._cursors:
                    self._cursors[wanted] = iter(self._read(wanted))
                answer = next(self._cursors[wanted], ())
            else:
                answer = wanted and wanted()
