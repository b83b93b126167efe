"""Asks leaders where their logs begin and end. Who asks the same leader at the same time shares the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any, TypeAlias

from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.service.kafka.together import Together
from snapreplay.service.ports import Bounds, TopicPartition

_NONE = -1  # no leader; no replica
_EARLIEST, _LATEST = -2, -1
_PAUSE_S = 0.02  # as the client's own

_Found: TypeAlias = Bounds | KafkaError


class LogEnds:
    """The questions of one client, about topics of which it knows the metadata. Each is asked of one leader, so that
    one which does not answer delays only those who want to know something of it; an error of a log is its own."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._asked: dict[tuple[int, int], Together[TopicPartition, _Found]] = {}

    async def bounds(self, logs: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, Bounds]:
        """Ask until the leaders know; the caller has a deadline.

        Raises:
            KafkaError: a connection broke, or asking again is futile.
        """
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        known: dict[TopicPartition, Bounds] = {}
        while left := [log for log in logs if log not in known]:
            met: KafkaError | None = None
            for log, found in (await self._ask(left, isolation)).items():
                if not isinstance(found, KafkaError):
                    known[log] = found
                elif not found.retriable:
                    raise found
                else:
                    met = found
            if met is not None:
                if met.invalid_metadata:
                    await self._client.force_metadata_update()
                await asyncio.sleep(_PAUSE_S)
        return known

    async def _ask(self, logs: Collection[TopicPartition], isolation: int) -> dict[TopicPartition, _Found]:
        found: dict[TopicPartition, _Found] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for log in logs:
            leader = self._client.cluster.leader_for_partition(ClientPartition(*log))
            if leader is None or leader == _NONE:
                found[log] = LeaderNotAvailableError(log)
            else:
                by_leader.setdefault(leader, []).append(log)
        for leader, its_logs in by_leader.items():
            key = leader, isolation
            if key not in self._asked:
                self._asked[key] = Together(partial(_bounds, self._client, *key))
            found |= await self._asked[key].ask(its_logs)
        return found


async def _bounds(
    client: AIOKafkaClient, leader: int, isolation: int, logs: Collection[TopicPartition]
) -> dict[TopicPartition, _Found]:
    """Ask for both ends in two requests: a broker refuses one that names a partition twice."""
    wanted: dict[str, list[int]] = {}
    for topic, number in logs:
        wanted.setdefault(topic, []).append(number)

    async def offsets(at: int) -> dict[TopicPartition, int | KafkaError]:
        topics = [(topic, [(number, at) for number in numbers]) for topic, numbers in wanted.items()]
        return _offsets_in(await client.send(leader, OffsetRequest(_NONE, isolation, topics)))

    starts, ends = await offsets(_EARLIEST), await offsets(_LATEST)
    return {log: _bounds_of(starts[log], ends[log]) for log in starts}


def _offsets_in(answer: Any) -> dict[TopicPartition, int | KafkaError]:
    found: dict[TopicPartition, int | KafkaError] = {}
    for topic, partitions in answer.topics:
        for number, code, _, offset in partitions:
            log = TopicPartition(topic, number)
            found[log] = for_code(code)(log) if code else int(offset)
    return found


def _bounds_of(start: int | KafkaError, end: int | KafkaError) -> _Found:
    if isinstance(start, int) and isinstance(end, int):
        # Trimming between the two requests can put the start above a pinned end.
        return Bounds(min(start, end), end)
    return start if isinstance(start, KafkaError) else end
