"""Watches the quiet partitions of a process: one connection and one fetch session (KIP-227) for those of a broker.

A watch delivers no records. It signals news, and the reader then fetches for itself: only a reader's own fetches are
read, judged and reported. So anything unusual about a watch only ends it for its readers.

A reader gives its connection back while it is watched. That connection would have shown that the broker was away, and
that what is read next may come from another log. So each connection that a watch loses is a loss for every reader that
it has had, wherever its partitions are led now. And a broker that answers late counts as lost.

The ends of quiet logs are watched in the same session: it tells of each log that changes, so the end of a silent one
need not be asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from snapreplay.errors import described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.config import FETCH_WAIT_MS, fetch_limits
from snapreplay.service.kafka.cursors import Answered, Cursor, Reading
from snapreplay.service.kafka.fetches import Log, SessionFetch, Wanted
from snapreplay.service.kafka.log_ends import NO_LEADER
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.kafka.throttling import wait_of
from snapreplay.service.ports import EndSeen, TopicPartition

LATE_S = 1.0
"""After the wait of a fetch, a broker that has not answered is silent."""
LINGER_S = 10.0
"""How long a watch without partitions keeps its connection: one may soon be back."""
_GRACE_S = 0.1  # after a standstill of the process, the answer may be here already
_REST_S, _REST_S_MAX = 1.0, 60.0
OLD_S = 2.0
"""An end that was confirmed longer ago is asked for: a fence may have come since."""
_EPOCH_MAX = 2**31 - 1
_SESSION_ERRORS = {70, 71, 106}
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: they say nothing of a log."""

log = logging.getLogger(__name__)


def broker_of(client: Client, cursor: Cursor, now_s: float) -> int:
    """Return the broker that a cursor is to be fetched from: the replica that its leader prefers, or the leader."""
    replica = cursor.replica(now_s)
    if replica is not None and client.cluster.broker_metadata(replica) is not None:
        return replica
    return client.leader(cursor.partition)


class Place:
    """The quiet cursors of one reader in a watch.

    Attributes:
        cursors: by log.
        wanted: what the broker is asked about each.
        is_watched: whether the broker has said that nothing has come for any of them.
        asked_at: when it was asked so last, by the loop's clock.
        over: done once the reader has to fetch for itself.
        has_replicas: whether one is fetched from the replica that its leader preferred, for a while.
    """

    def __init__(self, cursors: Mapping[Log, Cursor], client: Client) -> None:
        self.cursors = cursors
        self.wanted = {
            key: Wanted(each.partition, each.fetch_offset, each.epoch_below) for key, each in cursors.items()
        }
        self.is_watched, self.asked_at = False, 0.0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaders = {key: client.leader(each.partition) for key, each in cursors.items()}
        now_s = asyncio.get_running_loop().time()
        self.has_replicas = any(each.replica(now_s) is not None for each in cursors.values())

    def end(self) -> None:
        self.is_watched = False
        if not self.over.done():
            self.over.set_result(None)

    def judge(self, named: Mapping[Log, Wanted], found: Mapping[Log, Answered], asked_at: float) -> None:
        """Take the broker's answer. Ends on news, on an error, and if a new partition is missing from it."""
        if named or found:  # nearly always neither
            for key, cursor in self.cursors.items():
                answer = found.get(key)
                if answer is None:
                    if key in named:
                        self.end()
                elif cursor.is_news(answer):
                    cursor.disturbances += bool(answer.error_code)
                    self.end()
        self.is_watched, self.asked_at = not self.over.done(), asked_at

    def look_for_leaders(self, client: Client, node: int, now_s: float) -> None:
        """End if a partition is to be fetched from another broker now."""
        for key, cursor in self.cursors.items():
            if broker_of(client, cursor, now_s) != node:
                cursor.disturbances += client.leader(cursor.partition) != self._leaders[key]
                self.end()


class IdleWatch:
    """The watch of one broker."""

    def __init__(self, node: int, settings: Settings, shared: Shared, *, read_committed: bool) -> None:
        self.node = node
        limits = fetch_limits(settings, read_committed=read_committed, large=False, patient=True)
        # It delivers nothing, so the user's batching would only delay the news. The reader's own fetch keeps to it.
        wait_ms = min(limits.wait_ms, FETCH_WAIT_MS)
        self._limits = limits._replace(wait_ms=wait_ms, min_bytes=1, partition_bytes=1, max_bytes=1, rack="")
        self._client = Client(shared, is_reading=True)
        self._losses = 0
        self._readers: set[object] = set()
        self._places: list[Place] = []
        self._wanted: dict[Log, Wanted] = {}  # by the places
        self._has: dict[Log, Wanted] = {}  # in the broker's session
        self._metadata = -1  # the version by which the leaders were looked up last
        self._session = (0, 0)
        self._rests_until, self._failures = 0.0, 0
        self._task: asyncio.Task[None] | None = None
        self._has_places = asyncio.Event()
        self._said = Repeats()

    @property
    def losses(self) -> int:
        """The number of its connections that were lost, or whose broker was late."""
        return self._losses + self._client.losses

    def join(self, reader: object, cursors: Mapping[Log, Cursor]) -> Place | None:
        """Watch these cursors from the next fetch on; None: not possible now. Call `part` once afterwards."""
        loop, place = asyncio.get_running_loop(), Place(cursors, self._client)
        if loop.time() < self._rests_until or any(self._wanted.get(key, at) != at for key, at in place.wanted.items()):
            return None
        self._readers.add(reader)
        self._places.append(place)
        self._wanted |= place.wanted
        self._has_places.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return place

    def part(self, reader: object) -> Collection[asyncio.Task[None]]:
        """Remove a reader. The last one ends the watch: return its task then, which is cancelled."""
        self._readers.discard(reader)
        if self._task is None or self._readers:
            return ()
        self._task.cancel()
        return (self._task,)

    async def _run(self) -> None:
        try:
            while await self._is_needed():
                try:
                    await self._client.start()
                    await self._ask()
                except Exception as error:  # noqa: BLE001 - any error ends the watch, and its readers fetch again
                    self._fail(described(error), is_lost=True)
        finally:
            self._end()
            self._session, self._has, self._task = (0, 0), {}, None
            await self._client.close()

    async def _is_needed(self) -> bool:
        self._places = [each for each in self._places if not each.over.done()]
        self._wanted = {key: wanted for each in self._places for key, wanted in each.wanted.items()}
        if self._places:
            return True
        self._has_places.clear()
        try:
            async with asyncio.timeout(LINGER_S):
                return await self._has_places.wait()
        except TimeoutError:
            return False

    async def _ask(self) -> None:
        asked, wanted, asked_at = list(self._places), dict(self._wanted), asyncio.get_running_loop().time()
        named = {key: each for key, each in wanted.items() if self._has.get(key) != each}
        forgotten = [key for key in self._has if key not in wanted]
        session_id, number = self._session
        if not number or named.keys() & self._has.keys():
            # Asked for another offset of a partition that its session has, a broker says nothing: begin a new session.
            number, named, forgotten = 0, wanted, []
        fetch = SessionFetch(self._limits, (session_id, number), named, forgotten)
        try:
            answer = await self._answer(fetch)
        except IncompatibleBrokerVersion as error:
            self._fail(described(error))
            return
        except (KafkaError, TimeoutError) as error:
            self._fail(described(error), is_lost=True)
            return
        if answer.error_code:
            why = f"{for_code(answer.error_code).__name__} ({answer.error_code})"
            self._fail(why, is_lost=answer.error_code not in _SESSION_ERRORS)
        elif seconds := wait_of(answer):
            self._fail(f"the quota throttles it for {seconds:.1f} s", rest_s=seconds)
        elif not answer.session_id or (number and answer.session_id != session_id):
            self._fail("the broker keeps no fetch session for it (max.incremental.fetch.session.cache.slots)")
        else:
            self._failures = 0 if number else self._failures
            found, now_s = fetch.changes(answer), asyncio.get_running_loop().time()
            is_complete = found.keys() >= named.keys()  # else nothing is known of one: begin a new session
            self._session, self._has = (answer.session_id, number % _EPOCH_MAX + 1 if is_complete else 0), wanted
            for place in asked:
                place.judge(named, found, asked_at)
            is_new = self._metadata != self._client.shared.version
            self._metadata = self._client.shared.version
            for place in self._places:
                if is_new or place.has_replicas:
                    place.look_for_leaders(self._client, self.node, now_s)

    async def _answer(self, fetch: SessionFetch) -> Any:
        """Return the answer to a fetch; a new session's connection may take longer.

        Raises:
            KafkaError: there is none.
            TimeoutError: it is late.
        """
        sending = asyncio.create_task(self._client.send(self.node, fetch))
        try:
            limit_s = fetch.wait_ms / 1000 + LATE_S if self._has else None
            for seconds in (limit_s, _GRACE_S):
                await asyncio.wait([sending], timeout=seconds)
            if not sending.done():
                raise TimeoutError(f"no answer within {limit_s} s")
            return sending.result()
        finally:
            sending.cancel()

    def _fail(self, why: str, *, is_lost: bool = False, rest_s: float = 0.0) -> None:
        """End the watch for all readers, and pause. The next fetch begins a new session, which replaces this one."""
        now_s = asyncio.get_running_loop().time()
        self._losses += is_lost and bool(self._has)
        self._end(is_unanswered=is_lost)
        self._session, self._has = (self._session[0], 0), {}
        self._rests_until = now_s + max(rest_s, min(_REST_S * 2.0 ** min(self._failures, 16), _REST_S_MAX))
        self._failures += 1
        line = self._said.line(f"the watch of quiet partitions on broker {self.node} ended: {why}", now_s)
        if line is not None:
            log.info(line)

    def _end(self, *, is_unanswered: bool = False) -> None:
        places, self._places, self._wanted = self._places, [], {}
        for place in places:
            for cursor in place.cursors.values():
                cursor.is_unanswered |= is_unanswered and place.is_watched
            place.end()


class Watches:
    """The watches of one event loop."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._settings, self._shared = settings, shared
        self._made: dict[tuple[int, bool], IdleWatch] = {}

    def of(self, node: int, *, read_committed: bool) -> IdleWatch:
        """Return the watch of this broker."""
        key = node, read_committed
        if key not in self._made:
            self._made[key] = IdleWatch(node, self._settings, self._shared, read_committed=read_committed)
        return self._made[key]


class _End(Cursor):
    """A log that is watched from its end on. Only its end counts."""

    def is_news(self, answer: Answered) -> bool:
        has_moved = answer.last_stable_offset != self.fetch_offset
        return bool(has_moved or answer.error_code or answer.diverging is not None or answer.records)


class EndsWatch:
    """The watched ends of one reader of committed records."""

    def __init__(self, shared: Shared, watches: Watches, topic_ids: Mapping[str, str]) -> None:
        """Take topic → id; other topics are not watched."""
        self._client = Client(shared)
        self._watches, self._topic_ids = watches, topic_ids
        self._places: dict[TopicPartition, Place] = {}
        self._joined: set[IdleWatch] = set()

    def end_of(self, log: TopicPartition) -> EndSeen | None:
        """Return the end of a log that has not moved, and when its broker was last asked; None: ask."""
        place = self._places.get(log)
        if place is None or not place.is_watched:
            return None
        (wanted,) = place.wanted.values()
        seen = EndSeen(wanted.offset, place.asked_at)
        return seen if asyncio.get_running_loop().time() - seen.asked_at <= OLD_S else None

    def watch(self, log: TopicPartition, end_offset: int) -> None:
        """Watch a log that was found to end here."""
        topic_id = self._topic_ids.get(log.topic, "")
        key = topic_id, log.partition
        place = self._places.get(log)
        if place is not None and not place.over.done() and place.wanted[key].offset == end_offset:
            return  # the broker is still being asked
        if place is not None:
            place.end()
            del self._places[log]
        cursor = _End(log, end_offset, Reading(), topic_id)
        node = broker_of(self._client, cursor, asyncio.get_running_loop().time())
        if not topic_id or node == NO_LEADER:
            return
        watch = self._watches.of(node, read_committed=True)
        if (place := watch.join(self, {key: cursor})) is not None:
            self._joined.add(watch)
            self._places[log] = place

    def close(self) -> Collection[asyncio.Task[None]]:
        """End the places; return the tasks of the watches that end with them."""
        for place in self._places.values():
            place.end()
        return [task for watch in self._joined for task in watch.part(self)]
