"""`ports.Cluster` with aiokafka: the way to everything in Kafka."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from snapreplay.app.ways import MODULE
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import RefusedTopic, Unreachable
from snapreplay.service.core.lineage import LastFence
from snapreplay.service.kafka.admin import GroupMember, KafkaAdmin
from snapreplay.service.kafka.appender import KafkaAppender
from snapreplay.service.kafka.config import MIB, c_extension_loaded
from snapreplay.service.kafka.group_offsets import committed_offsets
from snapreplay.service.kafka.last_fence import last_fence
from snapreplay.service.kafka.leadership import agreed_end_offset
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.kafka.topic_watch import KafkaTopicWatch
from snapreplay.service.ports import (
    NO_IDS,
    ClusterFacts,
    CommittedOffset,
    NewTopic,
    TopicFacts,
    TopicPartition,
)

log = logging.getLogger(__name__)

COORDINATOR_PAUSE_S = 0.2
LIMITS_AGE_S = 30.0
"""A changed max.message.bytes counts for producers that start this much later, or after a refused record."""


class KafkaCluster:
    """Cheap to hold; clients are made per call. One per event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = KafkaAdmin(settings)
        self._limits: dict[str, tuple[int, float]] = {}
        if not c_extension_loaded():
            log.warning(
                "aiokafka runs without its C extension: reading and writing are 20 to 200 times slower;"
                " install a wheel for this Python (there is none for free-threaded builds and musl)"
            )

    async def reader(
        self,
        *,
        read_committed: bool = True,
        large: bool = False,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> KafkaReader:
        """See `ports.Cluster.reader`."""
        reader = KafkaReader(
            self._settings,
            read_committed=read_committed,
            large=large,
            patient=patient,
            topic_ids=topic_ids,
        )
        await reader.start()
        return reader

    async def fence(self, transactional_id: str) -> KafkaProducer:
        """See `ports.Cluster.fence`."""
        producer = KafkaProducer(
            self._settings, transactional_id, self._limits_of, self._limits.clear
        )
        await producer.start(self._settings.timeouts.fence_ms / 1000)
        return producer

    async def last_fence(self, transactional_id: str) -> LastFence | None:
        """See `ports.Cluster.last_fence`."""
        return await last_fence(self._settings, transactional_id)

    async def appender(self) -> KafkaAppender:
        """See `ports.Cluster.appender`."""
        appender = KafkaAppender(self._settings)
        await appender.start()
        return appender

    async def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """See `ports.Cluster.topics`."""
        return await self._admin.topics(names)

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """See `ports.Cluster.topic_ids`."""
        return await self._admin.topic_ids(names)

    def topic_watch(self) -> KafkaTopicWatch:
        """See `ports.Cluster.topic_watch`."""
        return KafkaTopicWatch(self._settings)

    async def member_count(self, group_id: str) -> int:
        """See `ports.Cluster.member_count`."""
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        while True:  # the first question ever makes the cluster create the coordinator's topic
            try:
                return len(await self.group_members(group_id))
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(COORDINATOR_PAUSE_S)

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """See `ports.Cluster.committed_offsets`."""
        return await committed_offsets(self._settings, group_id, partitions)

    async def topic_names(self) -> list[str]:
        """See `ports.Cluster.topic_names`."""
        return await self._admin.topic_names()

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """See `ports.Cluster.create_topics`."""
        await self._admin.create_topics(topics)

    async def facts(self) -> ClusterFacts:
        """See `ports.Cluster.facts`."""
        return await self._admin.facts()

    async def agreed_end_offset(self, partition: TopicPartition) -> int | None:
        """See `ports.Cluster.agreed_end_offset`."""
        return await agreed_end_offset(self._settings, partition)

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """See `ports.Cluster.delete_records`."""
        return await self._admin.delete_records(partition, before_offset)

    async def group_members(self, group_id: str) -> list[GroupMember]:
        """See `KafkaAdmin.group_members`."""
        return await self._admin.group_members(group_id)

    async def _limits_of(self, topics: Collection[str]) -> dict[str, int]:
        """max.message.bytes of each, no older than metadata may be."""
        fresh_after = time.monotonic() - LIMITS_AGE_S
        if any(self._limits.get(topic, (0, 0.0))[1] < fresh_after for topic in topics):
            facts = await self._admin.topics(topics)
            for topic in topics:
                if topic not in facts:
                    raise _no_topic(topic)
                limit = int(facts[topic].config.get("max.message.bytes", MIB))
                self._limits[topic] = (limit, time.monotonic())
        return {topic: self._limits[topic][0] for topic in topics}


def _no_topic(topic: str) -> RefusedTopic:
    return RefusedTopic(
        f"topic {topic} does not exist",
        hint=f"`snapreplay topics ensure {MODULE} --partitions N` creates it",
        topic=topic,
        error="unknown topic",
    )
