"""Asks a leader what its log holds at an offset, and how far it has a leader epoch (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.service.kafka.fetch_requests import FetchById
from snapreplay.service.kafka.fetched_batches import LogBatch, batches_in
from snapreplay.service.kafka.requests import LeaderEpochEnds
from snapreplay.service.ports import EpochEnd, TopicPartition

_WAIT_MS = 500
_ONE_BATCH = 1  # byte: a broker answers with one whole batch at least (KIP-74)
_READ_UNCOMMITTED = 0
_OUT_OF_RANGE = 1
_UNDEFINED = -1


async def batch_at(
    client: AIOKafkaClient, partition: TopicPartition, offset: int, ids: Mapping[str, str]
) -> LogBatch | None:
    """Return the batch that holds this offset; None when it is gone, trimmed or compacted.

    Raises:
        KafkaError: ask again; also when the answer was empty.
    """
    wanted = [(partition.topic, [(partition.partition, offset, _ONE_BATCH)])]
    fetch = FetchRequest(_WAIT_MS, 1, _ONE_BATCH, _READ_UNCOMMITTED, wanted)
    asked = FetchById(fetch, ids) if ids.get(partition.topic) else fetch
    answer = await client.send(await _leader(client, partition), asked)
    if isinstance(asked, FetchById):
        answer = asked.named(answer)
    if code := getattr(answer, "error_code", 0):
        raise for_code(code)(f"fetching {partition}")
    ((_, ((_, code, *_, records),)),) = answer.topics
    if code == _OUT_OF_RANGE:
        return None
    if code:
        raise for_code(code)(f"fetching {partition}")
    if not records:
        raise LeaderNotAvailableError(f"{partition} has nothing yet at offset {offset}")
    first = next(batches_in(records), None)
    return first if first is not None and first.base_offset <= offset < first.end_offset else None


async def epoch_end(
    client: AIOKafkaClient, partition: TopicPartition, leader_epoch: int
) -> EpochEnd | None:
    """Return the newest leader epoch up to `leader_epoch` that the log has, and where it ends; None when the broker
    does not know or is too old to be asked.

    Raises:
        KafkaError: ask again.
    """
    asked = LeaderEpochEnds(partition.topic, partition.partition, leader_epoch)
    try:
        answer = await client.send(await _leader(client, partition), asked)
    except IncompatibleBrokerVersion:
        return None
    ((_, ((code, _, epoch, end_offset, _),), _),) = answer.topics
    if code:
        raise for_code(code)(f"asking {partition} for leader epoch {leader_epoch}")
    return EpochEnd(epoch, end_offset) if _UNDEFINED not in (epoch, end_offset) else None


async def _leader(client: AIOKafkaClient, partition: TopicPartition) -> int:
    await client.add_topic(partition.topic)
    source = ClientPartition(*partition)
    leader = client.cluster.leader_for_partition(source)
    if leader is None or leader == _UNDEFINED:
        await client.force_metadata_update()
        leader = client.cluster.leader_for_partition(source)
    if leader is None or leader == _UNDEFINED:
        raise LeaderNotAvailableError(str(partition))
    return int(leader)
