"""Asks leaders where their logs begin and end. Who asks the same leader at the same time shares the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
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
_ONCE_S = 3.0
"""For the answer of a leader that is asked once: a frozen one must not hold up what the others say for longer."""

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

    async def end_offsets(self, logs: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, int]:
        """Ask each leader once, with one request. What is not answered is absent; a leader that has moved is looked
        up for the next time."""
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        async def asked(leader: int, its_logs: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            try:
                async with asyncio.timeout(_ONCE_S):
                    return await _offsets(self._client, leader, isolation, its_logs, _LATEST)
            except (KafkaError, TimeoutError):
                return dict.fromkeys(its_logs, LeaderNotAvailableError(leader))

        by_leader = self._by_leader(logs)
        found: dict[TopicPartition, int | KafkaError] = dict.fromkeys(
            by_leader.pop(_NONE, ()), LeaderNotAvailableError()
        )
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(asked(*each)) for each in by_leader.items()]
        ends = {log: end for answer in (found, *(each.result() for each in asking)) for log, end in answer.items()}
        if any(isinstance(end, KafkaError) and end.invalid_metadata for end in ends.values()):
            self._client.force_metadata_update()
        return {log: end for log, end in ends.items() if isinstance(end, int)}

    def _by_leader(self, logs: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for log in logs:
            leader = self._client.cluster.leader_for_partition(ClientPartition(*log))
            by_leader.setdefault(_NONE if leader is None else leader, []).append(log)
        return by_leader

    async def _ask(self, logs: Collection[TopicPartition], isolation: int) -> dict[TopicPartition, _Found]:
        by_leader = self._by_leader(logs)
        found: dict[TopicPartition, _Found] = {log: LeaderNotAvailableError(log) for log in by_leader.pop(_NONE, ())}
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
    starts = await _offsets(client, leader, isolation, logs, _EARLIEST)
    ends = await _offsets(client, leader, isolation, logs, _LATEST)
    return {log: _bounds_of(starts[log], ends[log]) for log in starts}


async def _offsets(
    client: AIOKafkaClient, leader: int, isolation: int, logs: Collection[TopicPartition], at: int
) -> dict[TopicPartition, int | KafkaError]:
    wanted: dict[str, list[tuple[int, int]]] = {}
    for topic, number in logs:
        wanted.setdefault(topic, []).append((number, at))
    return _offsets_in(await client.send(leader, OffsetRequest(_NONE, isolation, list(wanted.items()))))


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
