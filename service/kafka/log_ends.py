"""Where logs begin and end, asked of their leaders: one request for all who ask a leader at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from aiokafka.errors import KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.offset import OffsetRequest

from snapreplay.service.ports import Bounds, TopicPartition

if TYPE_CHECKING:
    from snapreplay.service.kafka.shared import Client

NO_LEADER = -1
_NO_REPLICA = -1
_EARLIEST, _LATEST = -2, -1
_PAUSE_S = 0.02
_ONCE_S = 3.0
"""For the answer of a leader that is asked once: a frozen one must not hold up what the others say for longer."""

_Found: TypeAlias = Bounds | KafkaError

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """Asks for several tasks with one request. A task that comes while one is under way waits for the next: no answer
    is older than its question."""

    def __init__(self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], *, in_turn: bool = True) -> None:
        """Take `in_turn`: a request waits for the answer to the one before."""
        self._ask, self._in_turn = ask, in_turn
        self._last: _Question[K, V] | None = None

    async def ask(self, keys: Collection[K], wait_s: float = 0.0) -> dict[K, V]:
        """Return what is known of these keys; raise as the question does, also if it is for another task's key. A new
        question waits `wait_s` for other tasks."""
        last = self._last
        if last is None or last.is_asked:
            last = self._last = _Question(self._ask, wait_s, last if self._in_turn else None)
        try:
            found = await last.answer(keys)
        finally:
            if self._last is last and last.task.done():
                self._last = None  # an answer may be large
        return {key: found[key] for key in keys if key in found}


class _Question(Generic[K, V]):
    def __init__(
        self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], wait_s: float, before: _Question[K, V] | None
    ) -> None:
        self.is_asked = False
        self._keys: set[K] = set()
        self._waiting = 0
        earlier = before.task if before is not None else None
        self.task: asyncio.Task[Mapping[K, V]] = asyncio.create_task(self._asked(ask, wait_s, earlier))

    async def answer(self, keys: Collection[K]) -> Mapping[K, V]:
        self._keys.update(keys)
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.is_asked = True  # by no caller any more
                self.task.cancel()
                await asyncio.wait([self.task])

    async def _asked(
        self,
        ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]],
        wait_s: float,
        before: asyncio.Task[Mapping[K, V]] | None,
    ) -> Mapping[K, V]:
        if wait_s:
            await asyncio.sleep(wait_s)
        if before is not None and not before.done():
            await asyncio.wait([before])
        self.is_asked = True
        return await ask(frozenset(self._keys))


class LogEnds:
    """Asks the leaders for the bounds of logs; those who ask a leader at the same time share a request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[tuple[int, int], Together[TopicPartition, _Found]] = {}

    async def bounds(self, logs: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, Bounds]:
        """Ask until the leaders know; the caller has a deadline.

        Raises:
            KafkaError: a connection broke, or asking again is futile.
        """
        isolation = int(read_committed)
        return await self._until_known(logs, lambda left: self._ask(left, isolation))

    async def first_at(self, log: TopicPartition, timestamp_ms: int, *, read_committed: bool) -> int | None:
        """Return the offset of the first record with this timestamp or a later one; None if there is none. Asks and
        raises as `bounds`."""
        isolation = int(read_committed)

        async def asked(logs: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            leader = self._client.leader(log)
            if leader == NO_LEADER:
                return {log: LeaderNotAvailableError(log)}
            return await _offsets(self._client, leader, isolation, logs, timestamp_ms)

        found = (await self._until_known([log], asked))[log]
        return found if found >= 0 else None

    async def _until_known(
        self,
        logs: Collection[TopicPartition],
        ask: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
    ) -> dict[TopicPartition, V]:
        known: dict[TopicPartition, V] = {}
        while left := [log for log in logs if log not in known]:
            met: KafkaError | None = None
            for log, found in (await ask(left)).items():
                if not isinstance(found, KafkaError):
                    known[log] = found
                elif not found.retriable:
                    raise found
                else:
                    met = found
            if met is not None:
                if met.invalid_metadata:
                    await self._client.shared.refresh()
                await asyncio.sleep(_PAUSE_S)
        return known

    async def end_offsets(self, logs: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, int]:
        """Ask each leader once, with one request. What is not answered is absent; a leader that has moved is looked
        up for the next time."""
        isolation = int(read_committed)

        async def asked(leader: int, its_logs: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            try:
                async with asyncio.timeout(_ONCE_S):
                    return await _offsets(self._client, leader, isolation, its_logs, _LATEST)
            except (KafkaError, TimeoutError):
                return dict.fromkeys(its_logs, LeaderNotAvailableError(leader))

        by_leader = self._by_leader(logs)
        found: dict[TopicPartition, int | KafkaError] = dict.fromkeys(
            by_leader.pop(NO_LEADER, ()), LeaderNotAvailableError()
        )
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(asked(*each)) for each in by_leader.items()]
        ends = {log: end for answer in (found, *(each.result() for each in asking)) for log, end in answer.items()}
        if any(isinstance(end, KafkaError) and end.invalid_metadata for end in ends.values()):
            self._client.shared.doubt()
        return {log: end for log, end in ends.items() if isinstance(end, int)}

    def _by_leader(self, logs: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for log in logs:
            by_leader.setdefault(self._client.leader(log), []).append(log)
        return by_leader

    async def _ask(self, logs: Collection[TopicPartition], isolation: int) -> dict[TopicPartition, _Found]:
        by_leader = self._by_leader(logs)
        found: dict[TopicPartition, _Found] = {
            log: LeaderNotAvailableError(log) for log in by_leader.pop(NO_LEADER, ())
        }
        for leader, its_logs in by_leader.items():
            key = leader, isolation
            if key not in self._asked:
                self._asked[key] = Together(partial(_bounds, self._client, *key))
            found |= await self._asked[key].ask(its_logs, self._client.shared.wait_s())
        return found


async def _bounds(
    client: Client, leader: int, isolation: int, logs: Collection[TopicPartition]
) -> dict[TopicPartition, _Found]:
    """Ask for both ends in two requests: a broker refuses one that names a partition twice."""
    starts = await _offsets(client, leader, isolation, logs, _EARLIEST)
    ends = await _offsets(client, leader, isolation, logs, _LATEST)
    return {log: _bounds_of(starts[log], ends[log]) for log in starts}


async def _offsets(
    client: Client, leader: int, isolation: int, logs: Collection[TopicPartition], at: int
) -> dict[TopicPartition, int | KafkaError]:
    wanted: dict[str, list[tuple[int, int]]] = {}
    for topic, number in logs:
        wanted.setdefault(topic, []).append((number, at))
    return _offsets_in(await client.send(leader, OffsetRequest(_NO_REPLICA, isolation, list(wanted.items()))))


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
