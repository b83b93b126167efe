"""The sources of all live partitions of a process: each broker keeps two fetch sessions (KIP-227) for their cursors,
as franz-go's `source` has one.

A fetch that waits at the broker for partitions without news would hold up one that has room for more records. So there
are two lanes to each broker, each with its own session and connection. The idle lane has the cursors to which nothing
comes, and waits long. The busy lane has the others, and waits shortly. What the idle fetch brings something to is busy;
what was quiet for a while is taken over by the next idle fetch, and stays busy until then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.config import client_arguments, fetch_limits
from snapreplay.service.kafka.cursors import ANSWERS_MAX, Cursor
from snapreplay.service.kafka.fetches import Fetch, Session, Wanted
from snapreplay.service.kafka.fetching import CANCEL_S, LATE_S, NO_LEADER, Brokers, News
from snapreplay.service.kafka.shared import Shared, SharingClient
from snapreplay.service.kafka.shutdown import close_client, finish_despite_cancel
from snapreplay.service.ports import TopicPartition

IDLE_WAIT_MS, BUSY_WAIT_MS, FRESH_WAIT_MS = 5000, 100, 1
QUIET_S = 1.0
"""After so long without a record a cursor is idle."""
AHEAD_MAX = 32
"""Cursors that fetch ahead."""
MAX_BYTES = 8 << 20
"""Of an answer for all cursors: decoding it blocks the loop."""
_IDLE, _BUSY = 2, 3  # groups of connections; the client's own are 0 and 1
_NOT_FOUND = 70
_SESSION_ERRORS = {_NOT_FOUND, 71, 106}
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""


class FetchSession:
    """What a broker's fetch session has, by the last answer. Pure."""

    def __init__(self) -> None:
        self._next = Session(0, 0)
        self._has: dict[TopicPartition, Wanted] = {}
        self.ids: dict[str, str] = {}
        """Topic → id, of what it has and is to have."""

    def ask(
        self, wanted: Sequence[Wanted], ids: Mapping[str, str]
    ) -> tuple[Session, Sequence[Wanted], Sequence[TopicPartition]]:
        """Return the next fetch, for exactly these partitions: which it names, and which it has the broker forget."""
        if any(self.ids.get(topic, topic_id) != topic_id for topic, topic_id in ids.items()):
            self.lose()  # it cannot be told to forget the former topic of this name
        if not self._next.is_incremental:
            self.ids = dict(ids)
            return self._next, wanted, ()
        self.ids.update(ids)
        kept = {each.partition for each in wanted}
        changed = [each for each in wanted if self._has.get(each.partition) != each]
        return self._next, changed, [each for each in self._has if each not in kept]

    def answered(self, session_id: int, wanted: Sequence[Wanted]) -> None:
        """Note an answer to the fetch for these partitions."""
        self._has = {each.partition: each for each in wanted}
        self._next = self._next.next(session_id)

    def lose(self, *, is_known: bool = True) -> None:
        """Begin a new one with the next fetch, because it is not known what the broker has. It ends the former one, if
        the broker knows that."""
        self._next = Session(self._next.session_id if is_known else 0, 0)


@dataclass(eq=False)
class _Lane:
    session: FetchSession = field(default_factory=FetchSession)
    task: asyncio.Task[None] | None = None
    asked: Sequence[_Place] = ()
    late_at: float = math.inf
    session_errors: int = 0  # in a row


@dataclass(eq=False)
class _Place:
    """A cursor in the sources.

    Attributes:
        is_fresh: nothing was answered yet, so a session might not say where the log ends.
        idle_at: the broker whose idle fetches have it.
        active_at: when something came.
    """

    cursor: Cursor
    news: News
    active_at: float
    is_fresh: bool = True
    idle_at: int | None = None


def _one_of_each(places: Sequence[_Place]) -> list[_Place]:
    """Leave one cursor of each partition, the one that is furthest behind. Several partitions of an app follow those of
    a broadcast table, and an answer for another offset would let a cursor skip records."""
    chosen: dict[TopicPartition, _Place] = {}
    for place in places:
        other = chosen.setdefault(place.cursor.partition, place)
        if place.cursor.fetch_offset < other.cursor.fetch_offset:
            chosen[place.cursor.partition] = place
    return list(chosen.values())


class Sources(Brokers):
    """One per event loop. It has nothing open while no reader follows."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        limits = fetch_limits(settings, read_committed=True, large=False, patient=True)
        self._settings, self._shared = settings, shared
        self._limits = limits._replace(max_bytes=min(limits.max_bytes, MAX_BYTES))
        self._users = 0
        self._client: SharingClient | None = None
        self._starting: asyncio.Task[None] | None = None
        self._places: dict[Cursor, _Place] = {}
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def client(self) -> SharingClient:
        if self._client is None:
            raise RuntimeError("no reader has entered")
        return self._client

    async def enter(self) -> None:
        """Begin to follow; `leave` once afterwards.

        Raises:
            KafkaConnectionError: no broker answers; there is nothing to leave.
        """
        self._users += 1
        try:
            if self._client is not None:  # whoever enters may be there because metadata are old
                await self._shared.enter()
                await self._shared.leave()
            elif self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(finish_despite_cancel(self._start()))
                self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._starting is not None:
                await asyncio.shield(self._starting)
        except BaseException:
            await self.leave()
            raise

    async def _start(self) -> None:
        super().__init__(self._limits)
        client = SharingClient(**client_arguments(self._settings))
        client.shared, client.is_reading, client.on_lost = self._shared, True, self._lost
        try:
            await client.bootstrap()
        except BaseException:
            await close_client(client)
            raise
        self._client = client

    async def leave(self) -> None:
        """End following; the last one closes everything."""
        self._users -= 1
        if self._users:
            return
        client, self._client = self._client, None
        starting, self._starting = self._starting, None
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        self._lanes = {}
        if starting is not None and not starting.done():
            tasks.append(starting)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)
        if client is not None:
            await close_client(client)

    def add(self, cursors: Iterable[Cursor], news: News) -> None:
        """Fetch for these, and wake `news` when something comes."""
        added = {each: _Place(each, news, self._loop.time()) for each in cursors}
        self._places |= added
        self._share()
        if added:
            self.client.set_topics({each.partition.topic for each in added})
        self.go_on(added)

    def remove(self, cursors: Iterable[Cursor]) -> None:
        """Fetch no more for these. What is under way for them means nothing any more."""
        for each in cursors:
            self._places.pop(each, None)
        self._share()

    def _share(self) -> None:
        """Let few cursors fetch ahead, many not: each answer may have a MiB."""
        answers_max = ANSWERS_MAX if len(self._places) <= AHEAD_MAX else 1
        for each in self._places:
            each.answers_max = answers_max

    def is_late(self, cursor: Cursor) -> bool:
        """Whether its broker should have answered by now."""
        place, now_s = self._places.get(cursor), self._loop.time()
        return any(lane.late_at < now_s and place in lane.asked for lane in self._lanes.values())

    def go_on(self, cursors: Iterable[Cursor] | None = None) -> None:
        """Begin the fetches that are due for these cursors, which may have room again; None: for all."""
        now_s, again_s = self._loop.time(), math.inf
        for cursor in list(self._places) if cursors is None else cursors:
            place = self._places.get(cursor)
            if place is None or not cursor.wants_fetch:
                continue
            if cursor.not_before > now_s:
                again_s = min(again_s, cursor.not_before)
                continue
            node = self.broker_of(self.client, cursor, now_s)
            self._run_lane(node, _IDLE if place.idle_at == node else _BUSY)
        if again_s < math.inf and (self._timer is None or self._timer.when() > again_s or self._timer.when() <= now_s):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(again_s, self._after_pause)

    def _after_pause(self) -> None:
        self._timer = None
        if self._client is not None:
            self.go_on()

    def _run_lane(self, node: int, group: int) -> None:
        lane = self._lanes.setdefault((node, group), _Lane())
        if lane.task is None:
            lane.task = self._loop.create_task(self._run(node, group, lane))

    async def _run(self, node: int, group: int, lane: _Lane) -> None:
        try:
            while places := self._turn(node, group):
                try:
                    await self._ask(node, group, lane, places)
                except Exception as error:  # noqa: BLE001 - whoever polls is told
                    lane.session.lose()
                    for place in places:
                        place.cursor.fail(error)
                        place.news.wake()
                finally:
                    lane.asked, lane.late_at = (), math.inf
                if group == _BUSY and self._has_quiet(node):
                    self._run_lane(node, _IDLE)
        finally:
            lane.task = None
        self.go_on()

    def _turn(self, node: int, group: int) -> list[_Place]:
        """Return the cursors of the next fetch in a lane. The idle one takes over what has become quiet."""
        now_s, found = self._loop.time(), list[_Place]()
        for place in self._places.values():
            cursor = place.cursor
            is_due = cursor.wants_fetch and cursor.not_before <= now_s
            if not is_due or self.broker_of(self.client, cursor, now_s) != node:
                if place.idle_at == node and group == _IDLE:
                    place.idle_at = None
            elif group == _BUSY:
                if place.idle_at != node:
                    found.append(place)
            elif place.idle_at == node or self._is_quiet(place, now_s):
                place.idle_at = node
                found.append(place)
        return _one_of_each([each for each in found if each.is_fresh] or found)

    def _has_quiet(self, node: int) -> bool:
        now_s = self._loop.time()
        return any(
            place.idle_at != node and self._is_quiet(place, now_s) and self.broker_of(self.client, each, now_s) == node
            for each, place in self._places.items()
        )

    @staticmethod
    def _is_quiet(place: _Place, now_s: float) -> bool:
        return not place.is_fresh and place.cursor.wants_fetch and now_s - place.active_at >= QUIET_S

    async def _ask(self, node: int, group: int, lane: _Lane, places: Sequence[_Place]) -> None:
        cursors = [each.cursor for each in places]
        if node == NO_LEADER:
            await self.look_up(self.client, cursors)
            return
        wanted = [Wanted(each.partition, each.fetch_offset, each.epoch_below) for each in cursors]
        ids = {each.partition.topic: each.topic_id for each in cursors}
        is_fresh = places[0].is_fresh
        wait_ms = FRESH_WAIT_MS if is_fresh else IDLE_WAIT_MS if group == _IDLE else BUSY_WAIT_MS
        limits = self._limits._replace(wait_ms=wait_ms)
        if is_fresh:
            fetch = Fetch(limits, wanted, ids)
        else:
            session, named, forgotten = lane.session.ask(wanted, ids)
            fetch = Fetch(limits, named, lane.session.ids, session, forgotten)
        lane.asked, lane.late_at = places, self._loop.time() + wait_ms / 1000 + LATE_S
        try:
            answer = await self.client.send(node, fetch, group=group)
        except IncompatibleBrokerVersion:
            raise
        except KafkaError as error:
            lane.session.lose()
            self.failed(node, cursors, error)
            return
        if answer.error_code in _SESSION_ERRORS:
            lane.session.lose(is_known=answer.error_code != _NOT_FOUND)
            lane.session_errors += 1
            for cursor in cursors if lane.session_errors > 1 else ():
                cursor.pause(self._loop.time())
            return
        answers = self.answers(node, cursors, fetch, answer)
        if answers is None:
            lane.session.lose()
            return
        if not is_fresh:
            lane.session_errors = 0
            lane.session.answered(answer.session_id, wanted)
        for place, (partition, offset, _) in zip(places, wanted, strict=True):
            cursor, found = place.cursor, answers.get(partition)
            if found is None:
                cursor.is_unanswered = False  # a session says only what is new
                continue
            self.answered(self.client, node, cursor, offset, found)
            if found.error_code == 0:
                place.is_fresh = False
            if found.error_code or found.records:
                place.idle_at = None
            if cursor.has_something or cursor.doubt:
                place.active_at = self._loop.time()
                place.news.wake()
        if group == _IDLE:
            self.go_on(cursors)

    def _lost(self, node: int) -> None:
        """Note that a connection to a broker was lost: what its partitions read may come from another log."""
        now_s = self._loop.time()
        for cursor in self._places:
            if self.broker_of(self.client, cursor, now_s) == node:
                cursor.disturbances += 1


class Following(News):
    """The cursors of one reader in the sources; `Sources.enter` first."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.client = sources.client
        self._cursors: Sequence[Cursor] = ()
        self._is_closed = False

    @property
    def is_silent(self) -> bool:
        """Whether a broker should have answered by now, or the last fetch of a cursor has failed."""
        return any(each.is_unanswered or self._sources.is_late(each) for each in self._cursors)

    def begin(self, cursors: Iterable[Cursor]) -> None:
        """Fetch for these instead of those before."""
        self._sources.remove(self._cursors)
        self._cursors = tuple(cursors)
        self._sources.add(self._cursors, self)

    def go_on(self) -> None:
        """Begin the fetches that are due: a cursor has room again."""
        self._sources.go_on(self._cursors)

    async def close(self) -> None:
        """End them. Bounded, never raises."""
        if self._is_closed:
            return
        self._is_closed = True
        self.begin(())
        self.wake()
        await self._sources.leave()
