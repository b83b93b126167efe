"""The own topics as a job reads them: through a port, inside the task, between offsets that are fixed before.

The Kafka client in the task needs no jars and no shuffle. It took half of the CPU time of every other shape
(measured).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from snapreplay.app import names
from snapreplay.app.record import InputRecord
from snapreplay.errors import UsageError
from snapreplay.snapshots.proof.moment import Moment
from snapreplay.snapshots.proof.records import Slices


class TopicMissing(UsageError):
    """A topic does not exist on this cluster."""


class LogReader(Protocol):
    """Reads partitions; used in one thread."""

    def partition_count(self, topic: str) -> int:
        """0 when there is no such topic."""

    def bounds(self, topic: str, partition: int, *, committed: bool) -> tuple[int, int]:
        """First offset and end; the end is the last stable offset where only `committed` records count."""

    def read(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *, committed: bool
    ) -> Iterator[Sequence[InputRecord]]:
        """Records with start_offset <= offset < end_offset, in order, in slices that are never empty.

        Raises:
            OffsetTrimmed: the first of them is gone.
        """


OpenReader = Callable[[], AbstractContextManager[LogReader]]
"""Called in each task, so it is sent to the executors: a function of a module with plain arguments."""


class PartitionLogs:
    """`proof.Logs` of one state partition."""

    def __init__(self, reader: LogReader, app_id: str, partition: int) -> None:
        self._reader = reader
        self._app_id = app_id
        self._partition = partition

    def increments(self, start_offset: int, end_offset: int) -> Slices:
        """See `Logs.increments`."""
        topic = names.increments_topic(self._app_id)
        return self._reader.read(topic, self._partition, start_offset, end_offset, committed=True)

    def snapshots(self, start_offset: int, end_offset: int) -> Slices:
        """See `Logs.snapshots`."""
        topic = names.snapshots_topic(self._app_id)
        return self._reader.read(topic, self._partition, start_offset, end_offset, committed=False)


def freeze(reader: LogReader, app_id: str) -> list[Moment]:
    """One moment of all partitions, by number.

    Starts come first, then the ends of the increments, then the ends of the snapshots: what the last increment points
    to is then inside, and what was trimmed before is not needed by it.

    Raises:
        TopicMissing: one of the two topics is not there.
        Unreachable: no answer.
    """
    log, snapshots = names.increments_topic(app_id), names.snapshots_topic(app_id)
    numbers = range(_partition_count(reader, log))
    _partition_count(reader, snapshots)
    log_starts = [reader.bounds(log, n, committed=True)[0] for n in numbers]
    starts = [reader.bounds(snapshots, n, committed=False)[0] for n in numbers]
    log_ends = [reader.bounds(log, n, committed=True)[1] for n in numbers]
    ends = [reader.bounds(snapshots, n, committed=False)[1] for n in numbers]
    return [
        Moment(
            n, log_starts[n], max(log_starts[n], log_ends[n]), starts[n], max(starts[n], ends[n])
        )
        for n in numbers
    ]


def _partition_count(reader: LogReader, topic: str) -> int:
    count = reader.partition_count(topic)
    if count == 0:
        raise TopicMissing(
            f"there is no topic {topic!r} on this cluster: another app id or kafka.bootstrap.servers is meant",
            topic=topic,
        )
    return count
