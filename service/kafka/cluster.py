"""`ports.Cluster` on a real cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    NoError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from snapreplay.app.ways import MODULE
from snapreplay.errors import StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.kafka_errors import RefusedTopic, Unreachable
from snapreplay.service.core.lineage import LastFence, Lineage
from snapreplay.service.kafka.admin import KafkaAdmin, KafkaTopicWatch
from snapreplay.service.kafka.config import MIB, c_extension_loaded
from snapreplay.service.kafka.connection import AnyRequest
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, translated
from snapreplay.service.kafka.feeding import KafkaAppender
from snapreplay.service.kafka.idle_watch import Watches
from snapreplay.service.kafka.log_ends import Together
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.kafka.requests import DescribeTransactions, error_codes
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import NO_IDS, CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

COORDINATOR_PAUSE_S = 0.2
_NO_SUCH_ID = 105  # TRANSACTIONAL_ID_NOT_FOUND
_LATEST = -1
LIMITS_AGE_S = 30.0
"""A changed max.message.bytes counts for producers that start this much later, or after a refused record."""


class KafkaCluster(KafkaAdmin):
    """A cluster, `ports.Cluster`: an admin client, and the clients of partitions.

    Cheap to hold; clients are made per call. One per event loop.
    """

    def __init__(self, settings: Settings) -> None:
        shared = self._of_this_loop = Shared(settings)
        self._watches = Watches(settings, shared)
        super().__init__(settings, shared)
        self._limits: dict[str, tuple[int, float]] = {}
        self._asking_for_limits = asyncio.Lock()
        self._ids: dict[frozenset[str], Together[str, str]] = {}
        self._committed: dict[str, Together[TopicPartition, CommittedOffset]] = {}
        if not c_extension_loaded():
            log.warning(
                "aiokafka runs without its C extension: reading and writing are 20 to 200 times slower;"
                " install a wheel for this Python (there is none for free-threaded builds and musl)"
            )

    def hold(self) -> None:
        """Keep connections open between one client and the next; `let_go` once afterwards."""
        self._of_this_loop.hold()

    async def let_go(self) -> None:
        """Close them with the last client. Bounded, never raises."""
        await self._of_this_loop.leave()

    async def reader(
        self,
        *,
        read_committed: bool = True,
        large: bool = False,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> KafkaReader:
        reader = KafkaReader(
            self._settings,
            read_committed=read_committed,
            large=large,
            patient=patient,
            topic_ids=topic_ids,
            shared=self._of_this_loop,
            watches=self._watches if patient else None,
        )
        await reader.start()
        return reader

    async def fence(self, transactional_id: str) -> KafkaProducer:
        producer = KafkaProducer(
            self._settings, transactional_id, self.limits_of, self._limits.clear, self._of_this_loop
        )
        await producer.start(self._settings.timeouts.fence_ms / 1000)
        return producer

    async def last_fence(self, transactional_id: str) -> LastFence | None:
        doing = f"asking who has fenced {transactional_id}"
        async with self.client(doing, "Write", transactional_id) as client:
            node = await client.coordinator(transactional_id, CoordinationType.TRANSACTION)
            answer = await client.send(node, DescribeTransactions(transactional_id))
            ((code, _, state, _, _, producer_id, epoch, *_),) = answer.transaction_states
            if code == _NO_SUCH_ID:
                return None
            if code:
                raise for_code(code)(transactional_id)
            return LastFence(Lineage(int(producer_id), int(epoch)), str(state))

    async def open_transaction(self, partition: TopicPartition) -> OpenTransaction | None:
        async with KafkaDiagnostics(self._settings) as ask:
            return await ask.holding(partition)

    async def appender(self) -> KafkaAppender:
        appender = KafkaAppender(self._settings, self._of_this_loop)
        await appender.start()
        return appender

    def topic_watch(self) -> KafkaTopicWatch:
        return KafkaTopicWatch(self._settings, self._of_this_loop)

    async def member_count(self, group_id: str) -> int:
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
        asked = self._committed.get(group_id)
        if asked is None:
            ask = partial(committed_offsets, self._settings, group_id, shared=self._of_this_loop)
            asked = self._committed[group_id] = Together(ask)
        return await asked.ask(partitions, self._of_this_loop.wait_s())

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        # Of the same names only: one that may not be described fails the whole question.
        wanted = frozenset(names)
        if wanted not in self._ids:
            self._ids[wanted] = Together(super().topic_ids)
        return await self._ids[wanted].ask(wanted, self._of_this_loop.wait_s())

    def offset_committer(self, group_id: str) -> KafkaOffsetCommitter:
        return KafkaOffsetCommitter(self._settings, group_id, shared=self._of_this_loop)

    async def agreed_end_offset(self, partition: TopicPartition) -> int | None:
        """Ask as `ports.Cluster.agreed_end_offset` says.

        A leader that is cut off from its peers goes on answering, and its log may end too early. But no other broker
        names it: they know the newer leader, and that one knows itself.

        Bounded by two request timeouts, never raises an error of the client.
        """
        client = Client(Shared(self._settings))
        try:
            async with asyncio.timeout(2 * self._settings.request_timeout_ms / 1000):
                await client.start()
                return await _agreed_end_offset(client, partition)
        except CLIENT_ERRORS:
            return None
        finally:
            await client.close()

    async def limits_of(self, topics: Collection[str]) -> dict[str, int]:
        """Return max.message.bytes of each, no older than metadata may be."""
        async with self._asking_for_limits:  # partitions that start together ask once
            fresh_after = time.monotonic() - LIMITS_AGE_S
            if any(self._limits.get(topic, (0, 0.0))[1] < fresh_after for topic in topics):
                facts = await self.topics(topics)
                for topic in topics:
                    if topic not in facts:
                        raise _no_topic(topic)
                    limit = int(facts[topic].config.get("max.message.bytes", MIB))
                    self._limits[topic] = (limit, time.monotonic())
            return {topic: self._limits[topic][0] for topic in topics}


TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
_NO_MEMBER, _NO_GENERATION = "", -1
_OCCUPIED = {22, 25, 27}  # illegal generation, unknown member, rebalance in progress


async def committed_offsets(
    settings: Settings, group_id: str, partitions: Collection[TopicPartition], shared: Shared | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """Ask as `ports.Cluster.committed_offsets` says."""
    request = OffsetFetchRequest(group_id, _by_topic((each, each.partition) for each in partitions))
    doing = f"reading the committed offsets of group {group_id}"
    async with KafkaAdmin(settings, shared).client(doing, name=group_id) as client:
        answer = await _asked(client, group_id, request)
    return {
        TopicPartition(topic, number): CommittedOffset(offset, metadata or "")
        for topic, entries in answer.topics
        for number, offset, metadata, _ in entries
        if offset >= 0
    }


class KafkaOffsetCommitter:
    """A committer, `ports.OffsetCommitter`. Connects with the first commit, and again after one without an answer."""

    def __init__(self, settings: Settings, group_id: str, shared: Shared | None = None) -> None:
        self._settings, self._group_id = settings, group_id
        self._client = Client(shared or Shared(settings))
        self._deadline_s = 3 * settings.request_timeout_ms / 1000

    async def close(self) -> None:
        await self._client.close()

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        group_id = self._group_id
        topics = _by_topic((each, (each.partition, *offset)) for each, offset in offsets.items())
        request = OffsetCommitRequest(group_id, _NO_GENERATION, _NO_MEMBER, TEN_YEARS_MS, topics)
        doing, asked = f"committing offsets of group {group_id}", Asked(self._settings, "Read", group_id)
        async with translated(doing, asked, within_s=self._deadline_s, give_up=self.close):
            await self._client.start()
            await _asked(self._client, group_id, request)


def _by_topic(entries: Iterable[tuple[TopicPartition, Any]]) -> list[tuple[str, list[Any]]]:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition, entry in entries:
        topics[partition.topic].append(entry)
    return list(topics.items())


async def _asked(client: Client, group_id: str, request: AnyRequest) -> Any:
    answer = await client.ask_coordinator(group_id, request)
    for code, topic in error_codes(answer).items():
        _refuse(group_id, topic, code)
    return answer


def _refuse(group_id: str, topic: str, code: int) -> None:
    """Raise what the code means; the caller converts the client's own errors."""
    if code in _OCCUPIED:
        raise StopError(
            f"group {group_id} has members, so only they can commit its offsets: {for_code(code).__name__}",
            hint=f"stop the consumers of group {group_id}: `kafka-consumer-groups.sh --bootstrap-server HOST:PORT"
            f" --describe --members --group {group_id}` lists it",
            error=for_code(code).__name__,
        )
    if code == OffsetMetadataTooLargeError.errno:
        raise StopError(
            f"the brokers refuse metadata of this length with an offset of group {group_id}",
            hint="raise offset.metadata.max.bytes on the brokers to its default, 4096",
        )
    if code == TopicAuthorizationFailedError.errno:
        raise TopicAuthorizationFailedError(topic)
    if code == GroupAuthorizationFailedError.errno:
        raise GroupAuthorizationFailedError(group_id)
    raise for_code(code)(topic or group_id)


def _no_topic(topic: str) -> RefusedTopic:
    return RefusedTopic(
        f"topic {topic} does not exist",
        hint=f"`snapreplay topics ensure {MODULE} --partitions N` creates it",
        topic=topic,
        error="unknown topic",
    )


class LeaderView(NamedTuple):
    """One broker's view of a partition: node ids."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


async def _agreed_end_offset(client: Client, partition: TopicPartition) -> int | None:
    views: dict[int, LeaderView | None] = {}
    asked = {broker.nodeId for broker in client.cluster.brokers()}
    while to_ask := asked - set(views):
        for node in to_ask:
            views[node], known = await leader_view(client, node, partition)
            asked |= known
    (view, *others) = set(views.values()) or (None,)  # one that the controllers have fenced names no brokers
    if others or view is None or not view.replicas <= set(views) or view.leader not in views:
        return None
    read_uncommitted = 0
    request = OffsetRequest(-1, read_uncommitted, [(partition.topic, [(partition.partition, _LATEST)])])
    answer = await client.send(view.leader, request)
    ((_, ((_, code, _, end_offset),)),) = answer.topics
    return int(end_offset) if code == NoError.errno else None


async def leader_view(client: Client, node: int, partition: TopicPartition) -> tuple[LeaderView | None, set[int]]:
    """Ask a broker; also return the brokers that it knows, and make them known to the client."""
    answer = await client.send(node, MetadataRequest([partition.topic], allow_auto_topic_creation=False))
    told: dict[str, Any] = answer.to_object()
    client.cluster.update_metadata(answer)
    known = {broker["node_id"] for broker in told["brokers"]}
    for topic in told["topics"]:
        for each in topic["partitions"]:
            if topic["topic"] == partition.topic and each["partition"] == partition.partition:
                return LeaderView(each["leader"], frozenset(each["replicas"]), frozenset(each["isr"])), known
    return None, known
