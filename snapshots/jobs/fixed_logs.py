"""The own topics as a job reads them: through a port, inside the task, between offsets that are fixed before.

The Kafka client in the task needs no jars and no shuffle. It took half of the CPU time of every other shape
(measured).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from snapreplay.app import names
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import RecordsGone, RetryableError, SnapreplayError, UsageError
from snapreplay.snapshots.format.envelope import Headers
from snapreplay.snapshots.log.reading import TopicPartition, of_input
from snapreplay.snapshots.proof.records import Moment, Slices

T = TypeVar("T")


class TopicMissing(UsageError):
    """A topic does not exist on this cluster."""


class LogReader(Protocol):
    """Reads partitions; used in one thread."""

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions, 0 when there is no such topic."""

    def bounds(self, topic: str, partition: int, *, committed: bool) -> tuple[int, int]:
        """Return first offset and end; the end is the last stable offset where only `committed` records count."""

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *, committed: bool
    ) -> Iterator[Sequence[InputRecord]]:
        """Read the records with start_offset <= offset < end_offset, in order, in slices that are never empty.

        Raises:
            OffsetTrimmed: the first of them is gone.
        """


class LogClient(LogReader, Protocol):
    """A reader that also appends; used in one thread."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Name → id; empty where the cluster has none."""

    def append(self, topic: str, partition: int, value: bytes, headers: Headers) -> int:
        """Append; return the record's offset, after all replicas have it. Outside any transaction, idempotent."""


class PartitionLogs:
    """The `proof.Logs` of one state partition."""

    def __init__(self, reader: LogReader, app_id: str, partition: int) -> None:
        self._reader = reader
        self._app_id = app_id
        self._partition = partition

    def increments(self, start_offset: int, end_offset: int) -> Slices:
        return self.input(names.increments_topic(self._app_id), start_offset, end_offset)

    def snapshots(self, start_offset: int, end_offset: int) -> Slices:
        topic = names.snapshots_topic(self._app_id)
        return self._reader.read(topic, self._partition, start_offset, end_offset, committed=False)

    def input(self, topic: str, start_offset: int, end_offset: int) -> Slices:
        place = TopicPartition(topic, self._partition).real
        if names.BROADCAST in topic and (count := self._reader.partition_count(place.topic)) <= place.partition:
            raise RecordsGone(f"topic {place.topic} has {counted(count, 'partition')}: {place} is not there")
        for records in self._reader.read(*place, start_offset, end_offset, committed=True):
            yield of_input(records, topic)


def freeze(reader: LogReader, app_id: str) -> list[Moment]:
    """Return the moment of each partition, by number. Raises TopicMissing: one of the two topics is not there."""
    return [moment_of(reader, app_id, number) for number in range(partition_count(reader, app_id))]


def moment_of(client: LogReader, app_id: str, partition: int) -> Moment:
    """Return the moment of one partition.

    Starts come first, then the end of the increments, then the end of the snapshots: what the last increment points to
    is then inside, and what was trimmed before is not needed by it.
    """
    log, snapshots = names.increments_topic(app_id), names.snapshots_topic(app_id)
    log_start = client.bounds(log, partition, committed=True)[0]
    start = client.bounds(snapshots, partition, committed=False)[0]
    log_end = client.bounds(log, partition, committed=True)[1]
    end = client.bounds(snapshots, partition, committed=False)[1]
    return Moment(partition, log_start, max(log_start, log_end), start, max(start, end))


ATTEMPTS = 3


class Trimmed(RetryableError):
    """The owner trimmed a partition again and again while it was read.

    Safe: Nothing that is in use was changed. You may run the job again.
    """


def untrimmed(reader: LogReader, app_id: str, moment: Moment, work: Callable[[Moment], T]) -> T:
    """Return what `work` makes of a partition. If its owner trims it meanwhile, it is read again from its new start.

    Raises:
        Trimmed: it was trimmed each time.
    """
    for _ in range(ATTEMPTS):
        try:
            return work(moment)
        except UsageError:
            raise
        except SnapreplayError:
            before, moment = moment, moment_of(reader, app_id, moment.partition)
            if (moment.log_start, moment.snapshots_start) == (before.log_start, before.snapshots_start):
                raise
    raise Trimmed(
        f"partition {moment.partition} of {app_id!r} was trimmed {ATTEMPTS} times while it was read",
        hint="take snapshots less often, or run the job while the app processes less: each snapshot trims the log",
    )


def partition_count(reader: LogReader, app_id: str) -> int:
    """Return the number of state partitions. Raises TopicMissing: one of the two topics is not there."""
    count = _count(reader, names.increments_topic(app_id))
    _count(reader, names.snapshots_topic(app_id))
    return count


def _count(reader: LogReader, topic: str) -> int:
    count = reader.partition_count(topic)
    if count == 0:
        raise TopicMissing(
            f"there is no topic {topic!r} on this cluster: another app id or kafka.bootstrap.servers is meant",
            topic=topic,
        )
    return count
