"""The committed offsets of a consumer group that has no members, with the text that is committed beside each.

aiokafka's own call for reading them drops error codes, and it has none for committing without a member.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from snapreplay.errors import StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.clients import KeptAdmin
from snapreplay.service.kafka.errors import Asked, translated
from snapreplay.service.kafka.requests import COORDINATOR_AWAY
from snapreplay.service.kafka.shared import Shared
from snapreplay.service.ports import CommittedOffset, TopicPartition

TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
_NO_MEMBER, _NO_GENERATION = "", -1
_PAUSE_S = 0.05
_OCCUPIED = {22, 25, 27}  # illegal generation, unknown member, rebalance in progress


async def committed_offsets(
    settings: Settings, group_id: str, partitions: Collection[TopicPartition], shared: Shared | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """Ask as `ports.Cluster.committed_offsets` says."""
    request = OffsetFetchRequest(group_id, _by_topic((each, each.partition) for each in partitions))
    doing = f"reading the committed offsets of group {group_id}"
    async with KafkaAdmin(settings, shared)._client(doing, name=group_id) as client:
        answer = await _asked(client, group_id, request)
    return {
        TopicPartition(topic, number): CommittedOffset(offset, metadata or "")
        for topic, entries in answer.topics
        for number, offset, metadata, _ in entries
        if offset >= 0
    }


class KafkaOffsetCommitter(KeptAdmin):
    """A committer, `ports.OffsetCommitter`. Connects with the first commit, and again after one without an answer."""

    def __init__(self, settings: Settings, group_id: str, shared: Shared | None = None) -> None:
        super().__init__(settings, shared)
        self._group_id = group_id

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        group_id = self._group_id
        topics = _by_topic((each, (each.partition, *offset)) for each, offset in offsets.items())
        request = OffsetCommitRequest(group_id, _NO_GENERATION, _NO_MEMBER, TEN_YEARS_MS, topics)
        doing, asked = f"committing offsets of group {group_id}", Asked(self._settings, "Read", group_id)
        async with translated(doing, asked, within_s=self._deadline_s, give_up=self.close):
            await _asked(await self._connected(), group_id, request)


def _by_topic(entries: Iterable[tuple[TopicPartition, Any]]) -> list[tuple[str, list[Any]]]:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition, entry in entries:
        topics[partition.topic].append(entry)
    return list(topics.items())


async def _asked(client: AIOKafkaAdminClient, group_id: str, request: Any) -> Any:
    while True:
        node = await _coordinator(client, group_id)
        answer = await client._send_request_to_node(node, request)
        found = {(topic, code) for topic, code in _codes(answer) if code}
        if not any(code in COORDINATOR_AWAY for _, code in found):
            for topic, code in found:
                _refuse(group_id, topic, code)
            return answer
        await asyncio.sleep(_PAUSE_S)


async def _coordinator(client: AIOKafkaAdminClient, group_id: str) -> int:
    """Find the coordinator; the first question ever makes the cluster create the coordinator's topic."""
    while True:
        try:
            return int(await client.find_coordinator(group_id))
        except tuple(for_code(code) for code in COORDINATOR_AWAY):
            await asyncio.sleep(_PAUSE_S)


def _codes(answer: Any) -> Iterator[tuple[str, int]]:
    """Yield topic and error code of each part; "" for the group's own, which only the answer to a fetch has."""
    yield "", getattr(answer, "error_code", 0)
    for topic, entries in answer.topics:
        yield from ((topic, code) for *_, code in entries)


def _refuse(group_id: str, topic: str, code: int) -> None:
    """Raise what the code means; the caller converts the client's own errors."""
    if code in _OCCUPIED:
        raise StopError(
            f"group {group_id} has members, so nobody else can commit its offsets: {for_code(code).__name__}",
            hint=f"stop what consumes as group {group_id}: `kafka-consumer-groups.sh --bootstrap-server HOST:PORT"
            f" --describe --members --group {group_id}` lists it",
            error=for_code(code).__name__,
        )
    if code == OffsetMetadataTooLargeError.errno:
        raise StopError(
            f"the brokers take no metadata of this length beside an offset of group {group_id}",
            hint="raise offset.metadata.max.bytes on the brokers to its default, 4096",
        )
    if code == TopicAuthorizationFailedError.errno:
        raise TopicAuthorizationFailedError(topic)
    if code == GroupAuthorizationFailedError.errno:
        raise GroupAuthorizationFailedError(group_id)
    raise for_code(code)(topic or group_id)
