"""The interface of Kafka that the service needs: `service.kafka` implements it for real brokers, the simulator in
memory.

Every call has a deadline. Errors are those of `snapreplay.errors` and `core.kafka_errors`, never the client's. A call
without an answer raises Unreachable, a reader without progress ReadStalled: functions that only pass them on do not
repeat it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord, Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.lineage import LastFence, Lineage
from snapreplay.service.core.retained import Ending
from snapreplay.snapshots.log.reading import TopicPartition as TopicPartition  # noqa: PLC0414 - too

NO_IDS: Mapping[str, str] = {}


NO_ANCHORS: Mapping[TopicPartition, PositionAnchor] = {}


class Bounds(NamedTuple):
    """The bounds of a log, `start_offset <= end_offset`; the end is the last stable offset under read_committed."""

    start_offset: int
    end_offset: int


class EndSeen(NamedTuple):
    """The end of what is committed in a log, and when its leader was asked, by the loop's clock."""

    end_offset: int
    asked_at: float


class LogBatch(NamedTuple):
    """A record batch in a log, with the offsets base_offset <= offset < end_offset, of records or of none.

    `is_cleaned`: the log cleaner has written it again, so its checksum is another one.
    """

    base_offset: int
    end_offset: int
    anchor: PositionAnchor
    is_cleaned: bool = False


class EpochEnd(NamedTuple):
    """The place where a log has the last offset of a leader epoch; `end_offset` is the next one."""

    leader_epoch: int
    end_offset: int


class CommittedOffset(NamedTuple):
    """A consumer group's committed offset in a partition: the next offset, and the text committed beside it."""

    offset: int
    metadata: str


class LogRecord(msgspec.Struct, frozen=True):
    """One of our records (claim, changes, increment, chunk, manifest) to append to `topic`."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; None: the time of writing. Only `Appender` looks at it."""


class Reader(Protocol):
    """Reads partitions without a group. One task at a time."""

    @property
    def disturbances(self) -> int:
        """The number of events after which a log may be another one, such as a new connection, a refused fetch or a
        lower leader epoch. Counted before anything read afterwards is returned."""

    @property
    def doubt(self) -> str:
        """Why a log is no longer the followed one, as its broker said; empty: it still is. With a doubt
        `poll` returns nothing more of that log."""

    @property
    def is_silent(self) -> bool:
        """Whether a broker has not answered the last fetch of what is followed, although it should have by now."""

    async def bounds(self, partition: TopicPartition) -> Bounds:
        """Ask the leader for the bounds. Raises Unreachable: no answer within timeouts.metadata_ms."""

    async def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Ask for the bounds of all of them, with as many requests as for one. Raises as `bounds`."""

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask each leader once where these logs end. Those without an answer within a few seconds are absent.

        Raises:
            Unreachable, NotAuthorized: nothing is known.
        """

    async def ends_seen(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, EndSeen]:
        """Return where these logs end, as `end_offsets`, each as of its `asked_at`. A patient reader that knows a log's
        topic id watches it, and asks again only after it has changed. Raises as `end_offsets`."""

    def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        """Read the records with start_offset <= offset < end_offset, in order, in slices that are never empty, until
        the position has reached `end_offset`. Replaces what the reader followed.

        Raises:
            OffsetTrimmed, OffsetBeyondEnd: out of range.
            ReadStalled: no progress for timeouts.progress_ms.
            TopicGone: the topic has been missing for longer than a broker may lag.
        """

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        """Read the record at exactly this offset; None when there is none (marker, aborted, compacted)."""

    async def first_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first record with this timestamp or a later one; the end if there is none. Raises
        as `bounds`."""

    async def batch_below(self, partition: TopicPartition, position: int) -> LogBatch | None:
        """Return the batch that holds the offset directly below this position; None when that is trimmed or compacted.
        A position beyond the end is waited for. Raises as `bounds`."""

    async def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        """Return the newest leader epoch up to this one that the log has, and where it ends (KIP-320); None: not
        known. Raises as `bounds`."""

    async def follow(
        self, positions: Mapping[TopicPartition, int], anchors: Mapping[TopicPartition, PositionAnchor] = NO_ANCHORS
    ) -> None:
        """Assign these partitions and seek each; `poll` then returns what comes. What was fetched before is thrown
        away. `anchors`: what lies below the positions, as far as known: each fetch asks whether it is still there."""

    def anchor_below(self, partition: TopicPartition, position: int) -> PositionAnchor | None:
        """Return what lies directly below a position that `poll` has led to since `follow`; None when that is not
        known. Earlier positions are not asked for any more."""

    async def poll(
        self, records_max: int, timeout_ms: int, only: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        """Return new records per partition, in order, possibly none.

        Args:
            only: of these followed partitions; None: of all.

        Raises:
            OffsetTrimmed, OffsetBeyondEnd: as in `read`.
        """

    def wake(self) -> None:
        """Let the `poll` that waits return, or the next one not wait. Only in the loop."""

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset that `poll` would read, for a followed partition; passes markers."""

    def end_offset(self, partition: TopicPartition) -> int | None:
        """End (last stable offset) as of the last fetch of a followed partition; None before the first."""

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """High watermark as of the last fetch of a followed partition; None before the first."""

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises."""


class Producer(Protocol):
    """A partition's transactional producer, already started (that was the fence), until the first doubt."""

    @property
    def needs_renewal(self) -> bool:
        """Whether the next transaction needs a new producer, although the last commit was answered OK: a request went
        unanswered before its repetition succeeded (KAFKA-17754: the old copy could decide a later transaction), or
        sequence numbers run out. Another `commit` raises CommitInDoubt."""

    @property
    def lineage(self) -> Lineage:
        """The lineage that the fence gave it. Every later fence of its id gives another one."""

    @property
    def ending(self) -> Ending:
        """The end of the last transaction, when `commit` raised or was cancelled."""

    async def commit(self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]) -> tuple[int, ...]:
        """Commit one transaction: outputs, then `records` to `partition` of their topics. Return the offsets of
        `records`, in order.

        Raises:
            Fenced, CommitInDoubt, RefusedRecord, ClockRefused, NotAuthorized: the producer has been discarded.
        """

    async def discard(self) -> None:
        """Close it by force; bounded, idempotent, never raises."""


class Appender(Protocol):
    """An idempotent producer outside any transaction, for full snapshots and answers of calls. One task at a time."""

    async def append(self, record: LogRecord, partition: int) -> int:
        """Append; return the acknowledged offset. Raises Unreachable, RefusedRecord."""

    async def close(self) -> None: ...


class TopicFacts(msgspec.Struct, frozen=True):
    """The facts of a topic.

    `config`: some settings, as strings (`kafka.admin.TOPIC_CONFIG`). `topic_id` (KIP-516) as Kafka's tools write it; ""
    when the cluster has none. `denied` says what this user may not
    do with an optional topic, which then has no config.
    """

    name: str
    partition_count: int
    replication_factor: int
    config: dict[str, str]
    topic_id: str = ""
    denied: SnapreplayError | None = None


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create; replication_factor -1 = the cluster's default."""

    name: str
    partition_count: int
    replication_factor: int = -1
    config: dict[str, str] = {}


class ClusterFacts(msgspec.Struct, frozen=True):
    """The facts of a cluster; `broker_config` of any one broker, as strings: transaction.max.timeout.ms, ..."""

    cluster_id: str
    broker_config: dict[str, str]


class ConsumerGroup(Protocol):
    """The app's consumer group as its coordinator knows it, which is not this process's own view."""

    @property
    def gives_away(self) -> bool:
        """Whether this process is to have nothing: it is drained, or about to stop."""

    async def is_assigned_to_us(self, partition: int) -> bool:
        """Say whether the partition is in this process's assignment. False during a rebalance, when there is none.

        Raises:
            Unreachable: no answer.
        """

    def rejoin(self) -> None:
        """Have the partitions assigned again, by what this process holds now."""


class TopicWatch(Protocol):
    """Asks again and again which topics exist, on connections that are kept. One task at a time."""

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        """Return what `Cluster.topic_ids` does, but a topic that may not be described has its last id, else "", and a
        warning says why. A broker that lags behind the controllers may name the id of a deleted topic.

        Raises:
            Unreachable: no answer within three request timeouts.
        """

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises."""


class OffsetCommitter(Protocol):
    """Commits offsets of one consumer group without members, on a connection that is kept. One task at a time."""

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit these offsets. They do not expire.

        Raises:
            NotAuthorized: Read on the group and on the topic is needed.
            StopError: the group has members.
            Unreachable: no answer; some may be committed.
        """

    async def close(self) -> None:
        """Close it; bounded, idempotent, never raises."""


class Cluster(Protocol):
    """The way to everything in Kafka. Cheap to hold; clients are made per call."""

    async def reader(
        self,
        *,
        read_committed: bool = True,
        large: bool = False,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> Reader:
        """Connect a reader. `large`: for records near 1 MiB. `patient`: for following an end. Topics in `topic_ids` are
        fetched by these ids, never from another topic of the same name.

        Raises:
            Unreachable: no broker answered.
        """

    async def fence(self, transactional_id: str) -> Producer:
        """Start the transactional producer of this id: older owners can commit nothing more.

        Raises:
            Unreachable: try again.
        """

    async def last_fence(self, transactional_id: str) -> LastFence | None:
        """Say who fenced last; None when the coordinator does not know the id (any more).

        Raises:
            Unreachable: no answer.
            StopError: this cluster does not tell (a broker before Kafka 3.0, or no permission).
        """

    async def open_transaction(self, partition: TopicPartition) -> OpenTransaction | None:
        """Return the open transaction of this partition that began first, which holds back the last stable offset, if
        there is one.

        Raises:
            NotAuthorized, Unreachable: it is not known.
        """

    async def appender(self) -> Appender: ...

    async def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, TopicFacts]:
        """Return the facts of those that exist. Of `optional` ones, a topic that this user may not read is `denied`,
        and no error."""

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the topic id of each, "" when the cluster has none. A topic that no broker knows is absent.

        Raises:
            NotAuthorized: one of them may not be described, so it is not known whether it exists.
            Unreachable: no answer.
        """

    def topic_watch(self) -> TopicWatch:
        """Make a watch that is not connected yet."""

    async def member_count(self, group_id: str) -> int:
        """Count the processes in this consumer group now; 0 when it does not exist. Raises Unreachable: no answer."""

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, with or without members, where there are any.

        Raises:
            NotAuthorized, Unreachable: they are not known.
        """

    def offset_committer(self, group_id: str) -> OffsetCommitter:
        """Return a committer that is not connected yet."""

    async def topic_names(self) -> list[str]:
        """Return all topics, sorted, for "did you mean"."""

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create and wait until every partition has a leader.

        Raises:
            StopError: names the topic and the broker's reason (exists, replication, config).
        """

    async def facts(self) -> ClusterFacts: ...

    async def agreed_end_offset(self, partition: TopicPartition) -> int | None:
        """Return the high watermark, if all brokers, each asked directly, name the same leader: then no other log of
        this partition is longer. None: they differ, or one did not answer."""

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Trim below an explicit offset (never -1). Returns the new log start."""
