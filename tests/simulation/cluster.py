"""`ports.Cluster` and `ports.Group` in memory: one per simulated process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, Unreachable
from snapreplay.service.core.lineage import LastFence
from snapreplay.service.ports import NO_IDS, ClusterFacts, CommittedOffset, NewTopic, TopicFacts, TopicPartition
from tests.simulation.broker import Broker, Concurrent, now
from tests.simulation.faults import Faults
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Link, Network, Owner
from tests.simulation.producer import REQUEST_SECONDS, SimAppender, SimProducer
from tests.simulation.reader import SimReader, Waits

ADMIN_SECONDS = 1.0
BACKOFF_SECONDS = 0.02


class SimCluster:
    def __init__(
        self,
        link: Link,
        settings: Settings,
        slice_records: int = 5000,
        ahead_records: int = 0,
        *,
        brokers_agree: bool = False,
    ) -> None:
        timeouts = settings.timeouts
        self.link, self.broker = link, link.network.broker
        self._commit_s = timeouts.commit_ms / 1000
        self._fence_s = timeouts.fence_ms / 1000
        self._transaction_s = timeouts.transaction_ms / 1000
        self._waits = Waits(timeouts.metadata_ms / 1000, timeouts.progress_ms / 1000)
        self._slice_records, self._ahead_records = slice_records, ahead_records
        self._brokers_agree = brokers_agree

    async def reader(
        self, *, read_committed: bool = True, topic_ids: Mapping[str, str] = NO_IDS, **_: bool
    ) -> SimReader:
        await self.link.connect(REQUEST_SECONDS)
        slices, ahead = self._slice_records, self._ahead_records
        return SimReader(self.link, self._waits, read_committed, slices, topic_ids, ahead)

    async def fence(self, transactional_id: str) -> SimProducer:
        self._must_write()
        deadline = now() + self._fence_s
        start = partial(self.broker.init_producer, transactional_id, self._transaction_s)
        while True:
            try:
                fence = await self.link.call("fence", start, max(0.0, deadline - now()))
            except Concurrent:
                if now() > deadline:
                    raise Unreachable(f"{transactional_id} was not fenced in time") from None
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            what = f"fenced {transactional_id} {fence.epoch}"
            self.link.network.trace(self.link.owner.name, what)
            return SimProducer(self.link, transactional_id, fence, self._commit_s)

    async def last_fence(self, transactional_id: str) -> LastFence | None:
        return await self.link.call("admin", partial(self.broker.last_fence, transactional_id), ADMIN_SECONDS)

    async def open_transaction(self, partition: TopicPartition) -> OpenTransaction | None:
        """Answer at once: what the coordinator tells of it is not simulated."""
        log = self.broker.logs[partition]
        return OpenTransaction(0, 0, log.stable) if log.stable < log.end else None

    async def appender(self) -> SimAppender:
        self._must_write()
        await self.link.connect(self._commit_s)
        return SimAppender(self.link, self._commit_s)

    def _must_write(self) -> None:
        """A standby has no business with a producer."""
        task = asyncio.current_task()
        if task is not None and task.get_name().startswith("standby-"):
            self.link.network.misused(f"{self.link.owner.name}: {task.get_name()} is about to write")

    async def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, TopicFacts]:
        await self.link.call("admin", lambda: None, ADMIN_SECONDS)
        counts = self.broker.partition_counts
        return {
            name: TopicFacts(name, counts[name], 1, {}, self.broker.topic_ids[name])
            for name in sorted({*names, *optional})
            if name in counts
        }

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        known = self.broker.topic_ids
        return await self.link.call(
            "admin", lambda: {name: known[name] for name in names if name in known}, ADMIN_SECONDS
        )

    def topic_watch(self) -> SimTopicWatch:
        return SimTopicWatch(self)

    async def member_count(self, group_id: str) -> int:
        return len(self.broker.members)  # of the only group

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Answer at once: Kafka's coordinator of groups is not simulated."""
        known = self.broker.group_offsets
        return {each: known[group_id, each] for each in partitions if (group_id, each) in known}

    def offset_committer(self, group_id: str) -> SimOffsetCommitter:
        return SimOffsetCommitter(self.broker, group_id)

    async def topic_names(self) -> list[str]:
        return sorted(self.broker.partition_counts)

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            self.broker.create(topic.name, topic.partition_count)

    async def facts(self) -> ClusterFacts:
        longest_ms = str(int(self._transaction_s * 1000))
        broker_config = {"transaction.max.timeout.ms": longest_ms}
        return ClusterFacts(self.broker.cluster_id, broker_config)

    async def agreed_end_offset(self, partition: TopicPartition) -> int | None:
        """Answer as `ports.Cluster.agreed_end_offset` says. Where the brokers never agree, waiting is what is
        simulated."""
        if not self._brokers_agree:
            return None
        logs, stale = self.broker.logs, self.broker.stale
        try:
            return await self.link.call(
                "admin",
                lambda: logs[partition].end if partition in logs and partition not in stale else None,
                ADMIN_SECONDS,
            )
        except Unreachable:
            return None

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        log = self.broker.logs.get(partition)
        if log is None:
            raise Unreachable(f"no answer about {partition}")

        def trim() -> int:
            if before_offset > log.end:
                raise OffsetBeyondEnd(f"{partition} cannot be trimmed below {before_offset}")
            return log.trim(before_offset)

        if before_offset < 0:
            raise ValueError(f"delete_records needs an explicit offset, not {before_offset}")
        start = await self.link.call("delete", trim, ADMIN_SECONDS)
        self.link.network.trace(self.link.owner.name, f"trimmed {partition} to {start}")
        return start


class SimOffsetCommitter:
    def __init__(self, broker: Broker, group_id: str) -> None:
        self.broker, self._group_id = broker, group_id

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.broker.commit_offsets({(self._group_id, each): offset for each, offset in offsets.items()})

    async def close(self) -> None:
        """Nothing to close."""


class SimTopicWatch:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        return await self._cluster.topic_ids(names)

    async def close(self) -> None:
        """Nothing to close."""


class SimGroup:
    """A simulated `ports.ConsumerGroup`. `asked` answers for this process at the coordinator, `rejoins` asks it for a
    new assignment."""

    gives_away = False

    def __init__(self, link: Link, asked: Callable[[int], bool], rejoins: Callable[[], None]) -> None:
        self.link, self._asked, self._rejoins = link, asked, rejoins

    async def is_assigned_to_us(self, partition: int) -> bool:
        return await self.link.call("group", partial(self._asked, partition), ADMIN_SECONDS)

    def rejoin(self) -> None:
        self._rejoins()


def undisturbed(loop: VirtualLoop, broker: Broker, settings: Settings) -> SimCluster:
    rng = random.Random(1)
    network = Network(loop, broker, Faults(rng, 0, 0), rng)
    return SimCluster(Link(network, Owner()), settings)
