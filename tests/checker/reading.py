"""An app's topics as confluent-kafka shows them, one record at a time: nothing is kept but what the client has fetched
ahead.

A read ends at an offset asked for beforehand, never because nothing came. Bounded in memory: a few MiB per open read.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

ANSWER_S = 30.0
ANOTHER_LEADER = {"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"}
POLL_S = 0.1
PROGRESS_S = 60.0
"""A read that does not move for this long fails."""
AT_ONCE = 500
FETCHED_AHEAD_KIB = 4096


class Stalled(Exception):
    """A read did not move for a minute."""


class LogMoved(Exception):
    """A read of what was trimmed meanwhile: ask for the bounds again."""


class Bounds(NamedTuple):
    """log start ≤ last stable offset ≤ high watermark."""

    start: int
    stable: int
    high: int


class Record(NamedTuple):
    """A record; `committed` False: in an aborted or open transaction."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    committed: bool = True
    timestamp_ms: int = -1


class Logs:
    """All topics of a cluster, read only."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._idle: dict[bool, list[Consumer]] = {True: [], False: []}
        self._open: list[Generator[Record, None, None]] = []

    def topics(self) -> dict[str, int]:
        """Name → number of partitions."""
        found = self._admin.list_topics(timeout=ANSWER_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Ask for the bounds afresh."""
        committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        # The stable one first: asked later, it might lie above the high watermark.
        stable = self._offset(topic, partition, OffsetSpec.latest(), committed)
        high = self._offset(topic, partition, OffsetSpec.latest(), uncommitted)
        return Bounds(self._offset(topic, partition, OffsetSpec.earliest(), uncommitted), stable, high)

    def read(self, topic: str, partition: int, start: int, end: int, *, committed: bool = True) -> Iterator[Record]:
        """Records of [start, end) in order. With `committed` only those, and the end is at most the last stable offset.

        Raises:
            LogMoved: `start` is not there any more.
            Stalled: nothing came for a minute.
        """
        records = self._read(topic, partition, start, end, committed)
        self._open.append(records)
        return records

    def end_reads(self) -> None:
        """Give up all reads that were begun and not read to their end."""
        for records in self._open:
            records.close()
        self._open.clear()

    def _read(self, topic: str, partition: int, start: int, end: int, committed: bool) -> Generator[Record, None, None]:
        if start >= end:
            return
        with self._lent(committed=committed) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            moved_at = time.monotonic()
            while True:
                messages = _some(consumer)
                if messages:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > PROGRESS_S:
                    raise Stalled(f"{topic}-{partition}: {PROGRESS_S:.0f} s without a record")
                for message in messages:
                    offset = message.offset() or 0
                    if message.error() is not None:
                        if _at_end(message, end):
                            return
                    elif offset >= end:
                        return
                    else:
                        headers: Any = tuple(message.headers() or ())
                        _, timestamp_ms = message.timestamp()
                        value = message.value()
                        yield Record(offset, message.key(), value, headers, True, timestamp_ms)

    def both(self, topic: str, partition: int, bounds: Bounds, on_odd: Callable[[int, str], None]) -> Iterator[Record]:
        """Everything up to the high watermark, each record with whether a read_committed reader sees it.

        `on_odd(offset, what)` hears what the two views do not agree on.
        """
        committed = self.read(topic, partition, bounds.start, bounds.stable)
        everything = self.read(topic, partition, bounds.start, bounds.high, committed=False)
        return both(committed, everything, on_odd)

    def close(self) -> None:
        self.end_reads()
        for consumer in (*self._idle[True], *self._idle[False]):
            consumer.close()

    @contextmanager
    def _lent(self, *, committed: bool) -> Iterator[Consumer]:
        """An idle one; making and closing one takes longer than reading a short log."""
        idle = self._idle[committed]
        consumer = idle.pop() if idle else self._consumer(committed=committed)
        try:
            yield consumer
        finally:
            consumer.unassign()
            idle.append(consumer)

    def _consumer(self, *, committed: bool) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "checker",  # the client demands one; nothing is ever committed to it
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 1,
                "fetch.queue.backoff.ms": 10,  # how long a full queue rests: 1 s by default
                "fetch.message.max.bytes": 1024 * 1024,
                "queued.min.messages": 2000,
                "queued.max.messages.kbytes": FETCHED_AHEAD_KIB,
                "log_level": 0,
            }
        )

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, level: IsolationLevel) -> int:
        place = TopicPartition(topic, partition)
        deadline = time.monotonic() + ANSWER_S
        while True:
            asked = self._admin.list_offsets({place: spec}, isolation_level=level, request_timeout=ANSWER_S)
            try:
                return int(asked[place].result(ANSWER_S).offset)
            except KafkaException as error:
                if error.args[0].name() not in ANOTHER_LEADER or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)  # the client learns of the other leader meanwhile


def both(
    committed: Iterator[Record], everything: Iterator[Record], on_odd: Callable[[int, str], None]
) -> Iterator[Record]:
    """The two views of one log, side by side."""
    odd = "read_committed delivers it, read_uncommitted does not"
    following = next(committed, None)
    for record in everything:
        while following is not None and following.offset < record.offset:
            on_odd(following.offset, odd)
            following = next(committed, None)
        if following is None or following.offset != record.offset:
            yield record._replace(committed=False)
            continue
        if (following.key, following.value) != (record.key, record.value):
            on_odd(record.offset, "two readers get two different records")
        yield record
        following = next(committed, None)
    while following is not None:
        on_odd(following.offset, odd)
        following = next(committed, None)


class Cursor:
    """A read that can be looked into before it is taken from."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self._head: Record | None = None

    def below(self, end: int) -> Record | None:
        """Take the next record if its offset is below `end`."""
        if self._head is None:
            self._head = next(self._records, None)
        if self._head is None or self._head.offset >= end:
            return None
        taken, self._head = self._head, None
        return taken


def _some(consumer: Consumer) -> list[Message]:
    """Return what is there now; waits a little for the first. `consume` alone would wait until it is full."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE, 0)]


def _at_end(message: Any, end: int) -> bool:
    """Say whether this event ends the read. Brokers that are away for a moment are the client's business."""
    error = message.error()
    if error.name() == "_PARTITION_EOF":
        return (message.offset() or 0) >= end
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        raise LogMoved(f"{message.topic()}-{message.partition()}: {error.str()}")
    if error.fatal():
        raise KafkaException(error)
    return False


@dataclass(frozen=True)
class Names:
    """The names of topics, by what they are for."""

    app_id: str
    inputs: tuple[str, ...]
    output: str
    partitions: int

    @property
    def increments(self) -> str:
        return f"{self.app_id}-increments"

    @property
    def snapshots(self) -> str:
        return f"{self.app_id}-snapshots"

    @property
    def releases(self) -> str:
        """No topic: what the outputs of timers say they are of."""
        return f"releases-{self.app_id}"

    @property
    def rates(self) -> str:
        """The table of an app that is wired."""
        return f"rates-{self.app_id}"

    @property
    def hops(self) -> str:
        """Its internal topic."""
        return f"{self.app_id}-internal-hops"

    @property
    def answers(self) -> str:
        """The internal topic of its call."""
        return f"{self.app_id}-internal-ask-results"

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.inputs, self.output, self.increments, self.snapshots)
