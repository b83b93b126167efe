"""The end of a log, according to a leader that every broker knows as the leader.

A leader that is cut off from its peers goes on answering, and its log may end too early. But no other broker names it:
they know the newer leader, and that one knows itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.clients import BareClient
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.errors import CLIENT_ERRORS
from snapreplay.service.kafka.shutdown import close_client, finish_despite_cancel
from snapreplay.service.ports import TopicPartition

_READ_UNCOMMITTED = 0
_LATEST = -1
_NO_ERROR = 0


class _View(NamedTuple):
    """One broker's view of a partition: node ids."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


async def agreed_end_offset(settings: Settings, partition: TopicPartition) -> int | None:
    """Ask as `ports.Cluster.agreed_end_offset` says. Bounded by two request timeouts, never raises an error of the
    client."""
    client = BareClient(**client_arguments(settings))
    try:
        async with asyncio.timeout(2 * settings.request_timeout_ms / 1000):
            await finish_despite_cancel(client.bootstrap())
            return await _agreed_end_offset(client, partition)
    except CLIENT_ERRORS:
        return None
    finally:
        await close_client(client)


async def _agreed_end_offset(client: AIOKafkaClient, partition: TopicPartition) -> int | None:
    views: dict[int, _View | None] = {}
    asked = {broker.nodeId for broker in client.cluster.brokers()}
    while to_ask := asked - set(views):
        for node in to_ask:
            views[node], known = await _view(client, node, partition)
            asked |= known
    (view, *others) = set(views.values())
    if others or view is None or not view.replicas <= set(views) or view.leader not in views:
        return None
    request = OffsetRequest(
        -1, _READ_UNCOMMITTED, [(partition.topic, [(partition.partition, _LATEST)])]
    )
    answer = await client.send(view.leader, request)
    ((_, ((_, code, _, end_offset),)),) = answer.topics
    return int(end_offset) if code == _NO_ERROR else None


async def _view(
    client: AIOKafkaClient, node: int, partition: TopicPartition
) -> tuple[_View | None, set[int]]:
    """Ask a broker; also return the brokers that it knows, and make them known to the client."""
    answer = await client.send(
        node, MetadataRequest([partition.topic], allow_auto_topic_creation=False)
    )
    told: dict[str, Any] = answer.to_object()
    client.cluster.update_metadata(answer)
    known = {broker["node_id"] for broker in told["brokers"]}
    for topic in told["topics"]:
        for each in topic["partitions"]:
            if topic["topic"] == partition.topic and each["partition"] == partition.partition:
                return _View(
                    each["leader"], frozenset(each["replicas"]), frozenset(each["isr"])
                ), known
    return None, known
