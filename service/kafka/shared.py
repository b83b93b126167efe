"""The resources that the Kafka clients of one event loop share: metadata, requests for the bounds of logs, and idle
connections. With 200 partitions, clients of their own spent most of their time on decoding metadata and connecting.

A connection belongs to one client until it is given back: no request waits behind another client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import CloseReason
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import KafkaConnectionError, KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.connection import BareClient, Connection
from snapreplay.service.kafka.patience import Patience
from snapreplay.service.kafka.shutdown import CLOSE_S, bounded, close_client, finish_despite_cancel
from snapreplay.service.ports import Bounds, TopicPartition

FRESH_SECONDS = 1.0
"""A client that starts gets metadata that is no older: it may be there because another one met a stale leader."""
REPEATED_SECONDS = 0.1
"""Between an answer and the same question, as in Kafka's own clients. Without it, a client whose partition had no
leader asked 2,700 times a second (measured, with aiokafka's fetcher)."""
IDLE_MAX = 32
"""Connections to a broker that are kept although nobody uses them."""
DRAIN_SECONDS = 2.0
"""For an answer that nobody waits for any more; then its connection is closed."""


class BrokerNode(NamedTuple):
    """A broker, and where it listens."""

    node_id: int
    host: str
    port: int


class _NoTopics(frozenset[str]):
    """Asks for no topic: the client takes an empty set for all of them."""

    def __bool__(self) -> bool:
        return True


_NONE = -1  # no leader; no replica
_EARLIEST, _LATEST = -2, -1
_PAUSE_S = 0.02  # as the client's own
_ONCE_S = 3.0
"""For the answer of a leader that is asked once: a frozen one must not hold up what the others say for longer."""

_Found: TypeAlias = Bounds | KafkaError

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """Asks for several tasks with one request. A task that comes while one is under way waits for the next: no answer
    is older than its question."""

    def __init__(self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._ask = ask
        self._last: _Question[K, V] | None = None

    async def ask(self, keys: Collection[K]) -> dict[K, V]:
        """Return what is known of these keys; raise as the question does, whoever's key is to blame."""
        last = self._last
        if last is None or last.is_asked:
            last = self._last = _Question(self._ask, last)
        found = await last.answer(keys)
        return {key: found[key] for key in keys if key in found}


class _Question(Generic[K, V]):
    def __init__(self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], before: _Question[K, V] | None) -> None:
        self.is_asked = False
        self._keys: set[K] = set()
        self._waiting = 0
        earlier = before.task if before is not None else None
        self.task: asyncio.Task[Mapping[K, V]] = asyncio.create_task(self._asked(ask, earlier))

    async def answer(self, keys: Collection[K]) -> Mapping[K, V]:
        self._keys.update(keys)
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.is_asked = True  # by nobody any more
                self.task.cancel()
                await asyncio.wait([self.task])

    async def _asked(
        self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], before: asyncio.Task[Mapping[K, V]] | None
    ) -> Mapping[K, V]:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self.is_asked = True
        return await ask(frozenset(self._keys))


class LogEnds:
    """Asks the leaders for the bounds of logs, each in its own request: a silent leader delays no other."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._asked: dict[tuple[int, int], Together[TopicPartition, _Found]] = {}

    async def bounds(self, logs: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, Bounds]:
        """Ask until the leaders know; the caller has a deadline.

        Raises:
            KafkaError: a connection broke, or asking again is futile.
        """
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        return await self._until_known(logs, lambda left: self._ask(left, isolation))

    async def first_at(self, log: TopicPartition, timestamp_ms: int, *, read_committed: bool) -> int | None:
        """Return the offset of the first record with this timestamp or a later one; None if there is none. Asks and
        raises as `bounds`."""
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        async def asked(logs: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            leader = self._client.cluster.leader_for_partition(ClientPartition(*log))
            if leader is None or leader == _NONE:
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


class Metadata(BareClient):
    """The client that asks for the metadata; when no known broker answers, it starts again from the addresses."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(**client_arguments(settings))
        self._settings = settings
        self._topics: frozenset[str] = _NoTopics()
        self._asked_at = -FRESH_SECONDS
        self._answered: tuple[Collection[str], float] = (), 0.0
        self.log_ends = LogEnds(self)
        """Asks for all clients, on a connection of its own to each leader."""

    def is_old(self) -> None:
        """Ask again before another client starts."""
        self._asked_at = -FRESH_SECONDS

    async def freshen(self) -> None:
        """Make sure that the metadata is fresh.

        Raises:
            KafkaConnectionError: no broker answers.
        """
        if self._loop.time() - self._asked_at < FRESH_SECONDS:
            return
        if self._sync_task is None:
            await self.bootstrap()
            self._asked_at = self._loop.time()
        elif not await self.force_metadata_update():
            raise KafkaConnectionError(f"Unable to update metadata from {self.hosts}")

    async def of(self, topics: Collection[str]) -> ClusterMetadata:
        """Return what is known, of these topics, too."""
        await self.track(topics)
        return self.cluster

    def track(self, topics: Collection[str]) -> asyncio.Future[Any]:
        """Ask for these topics, too."""
        if self._topics.issuperset(topics):
            known: asyncio.Future[Any] = self._loop.create_future()
            known.set_result(True)
            return known
        # Another set, not a larger one: the client compares them, to ask again when it has just asked.
        self._topics = _NoTopics(self._topics.union(topics))
        updated: asyncio.Future[Any] = self.force_metadata_update()
        return updated

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: Collection[str]) -> bool:
        before, answered_at = self._answered
        if topics == before:
            await asyncio.sleep(answered_at + REPEATED_SECONDS - self._loop.time())
        try:
            return await self._updated(cluster_metadata, topics)
        finally:
            self._answered = topics, self._loop.time()

    async def _updated(self, cluster_metadata: ClusterMetadata, topics: Collection[str]) -> bool:
        asked_at = self._loop.time()
        if not await super()._metadata_update(cluster_metadata, topics) and not await self._began_anew(topics):
            return False
        self._asked_at = asked_at
        return True

    def _close_first_connection(self) -> None:
        """Close what the client kept because the broker named no brokers, as a fenced one does: it forgets it."""
        kept = self._conns.pop(("bootstrap", ConnectionGroup.DEFAULT), None)
        if kept is not None:
            kept.close()

    async def _began_anew(self, topics: Collection[str]) -> bool:
        self._bootstrap_servers = client_arguments(self._settings)["bootstrap_servers"]  # shuffled
        self._close_first_connection()
        try:
            await self.bootstrap()
        except KafkaConnectionError:
            return False
        updated: bool = await super()._metadata_update(self.cluster, topics)
        return updated


class Shared:
    """One per event loop. It holds nothing open while no client is, unless somebody holds it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._users = 0
        self._metadata: Metadata | None = None
        self._freshening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._idle: dict[BrokerNode, list[Connection]] = {}
        self.patience: dict[int, Patience] = {}
        """Of the producers, by coordinator."""

    @property
    def users(self) -> int:
        """The number of clients that share it."""
        return self._users

    def adopt(self, client: AIOKafkaClient) -> None:
        """Make a client, which has not started, share."""
        client.__class__ = SharingClient
        client.shared = self

    def client(self) -> SharingClient:
        """Make a client that shares, and has not started."""
        made = SharingClient(**client_arguments(self._settings))
        made.shared = self
        return made

    def hold(self) -> None:
        """Keep what is open, also while no client is; `leave` once afterwards."""
        self._users += 1

    async def enter(self) -> Metadata:
        """Begin to use it; `leave` once afterwards.

        Raises:
            KafkaConnectionError: no broker answers; there is nothing to leave.
        """
        self._users += 1
        try:
            metadata = self._metadata = self._metadata or Metadata(self._settings)
            if self._freshening is None or self._freshening.done():
                self._freshening = asyncio.create_task(finish_despite_cancel(metadata.freshen()))
                self._freshening.add_done_callback(_look_at)
            await asyncio.shield(self._freshening)
        except BaseException:
            await self.leave()
            raise
        return metadata

    async def leave(self) -> None:
        """End using it; the last one closes everything."""
        self._users -= 1
        if self._users:
            return
        metadata, self._metadata = self._metadata, None
        freshening, self._freshening = self._freshening, None
        idle = [each for connections in self._idle.values() for each in connections]
        self._idle = {}
        # Whoever closes a client gives up after a moment; what is shared is closed all the same.
        ending = asyncio.create_task(_end(metadata, freshening, idle))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    def distrust(self) -> None:
        """Take nothing for granted: a client made no progress with what is here."""
        if self._metadata is not None:
            self._metadata.is_old()
        for place in list(self._idle):
            self.drop(place)

    def drop(self, place: BrokerNode) -> None:
        """Close what nobody uses there: a connection to this broker was lost."""
        for connection in self._idle.pop(place, ()):
            connection.close(CloseReason.SHUTDOWN)

    def take(self, node: Any) -> Connection | None:
        """Return a connection to this broker that nobody uses, the one that was used last."""
        idle = self._idle.get(BrokerNode(*node[:3]), []) if node is not None else []
        for connection in [each for each in idle if not each.connected() or each.is_due]:
            idle.remove(connection)
            connection.close(CloseReason.CONNECTION_BROKEN)  # it holds a socket until then
        for index in reversed(range(len(idle))):
            # Others have an answer to come, to what a reader asked before it ended, or the broker does not read them.
            if not idle[index]._requests and not idle[index].is_muted:
                return idle.pop(index)
        return None

    def give_back(self, node_id: int, connection: Connection) -> None:
        connection._on_close_cb = None
        idle = self._idle.setdefault(BrokerNode(node_id, connection.host, connection.port), [])
        if self._metadata is None or not connection.connected() or len(idle) >= IDLE_MAX:
            connection.close(CloseReason.SHUTDOWN)
            return
        idle.append(connection)
        if connection._requests:
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, _close_unanswered, connection, connection._requests[0])


async def _end(metadata: Metadata | None, freshening: asyncio.Task[None] | None, idle: Iterable[Connection]) -> None:
    await bounded(closed(idle), CLOSE_S)
    if freshening is not None and not freshening.done():
        freshening.cancel()
        await asyncio.wait([freshening])
    if metadata is not None:
        await close_client(metadata)


def _close_unanswered(connection: Connection, request: object) -> None:
    if connection._requests and connection._requests[0] is request:
        connection.close(CloseReason.CONNECTION_TIMEOUT)


async def closed(connections: Iterable[Connection]) -> None:
    """Close them, and wait until the sockets are."""
    ends = [each.close(CloseReason.SHUTDOWN) for each in connections]
    if ends:
        await asyncio.wait(ends)


def _look_at(done: asyncio.Task[None]) -> None:
    """Look at its error: whoever waited may be gone."""
    if not done.cancelled():
        done.exception()


class SharedView(ClusterMetadata):
    """The shared metadata as one client has it, with listeners of its own."""

    __slots__ = ("_ours",)

    def __init__(self, shared: ClusterMetadata) -> None:
        self.__dict__ = shared.__dict__  # type: ignore[misc]  # the one that its base class has
        self._ours: list[Callable[[ClusterMetadata], None]] = []

    def add_listener(self, listener: Callable[[ClusterMetadata], None]) -> None:
        self._ours.append(listener)
        super().add_listener(listener)

    def update_metadata(self, metadata: Any) -> None:
        self.__dict__ = {**self.__dict__, "_listeners": set(self._ours)}  # type: ignore[misc]  # as above
        super().update_metadata(metadata)

    def end(self) -> None:
        """Tell the listeners nothing more."""
        self._listeners.difference_update(self._ours)


class SharingClient(BareClient):
    """The client inside a consumer, producer or admin client. `Shared.adopt` makes one."""

    shared: Shared
    is_reading = False
    """Whether what is under way when it closes may be forgotten."""
    losses = 0
    """Connections that were lost."""
    _metadata: Metadata | None = None

    async def bootstrap(self) -> None:
        metadata = await self.shared.enter()
        self._metadata, self.cluster = metadata, SharedView(metadata.cluster)

    async def close(self) -> None:
        metadata, self._metadata = self._metadata, None
        self.give_back()
        left = list(self._conns.values())
        self._conns.clear()
        if isinstance(self.cluster, SharedView):
            self.cluster.end()
        try:
            await closed(left)
        finally:
            if metadata is not None:
                await self.shared.leave()

    def give_back(self) -> None:
        """Give back every connection on which nothing is under way."""
        for (node_id, group), connection in list(self._conns.items()):
            if self.is_reading or not connection._requests:
                del self._conns[node_id, group]
                self.shared.give_back(node_id, connection)

    def force_metadata_update(self) -> asyncio.Future[Any]:
        updated: asyncio.Future[Any] = self._connected_metadata().force_metadata_update()
        return updated

    def add_topic(self, topic: str) -> asyncio.Future[Any]:
        return self._connected_metadata().track([topic])

    def set_topics(self, topics: Collection[str]) -> asyncio.Future[Any]:
        return self._connected_metadata().track(topics)

    async def _maybe_wait_metadata(self) -> None:
        await self._connected_metadata()._maybe_wait_metadata()

    def _connected_metadata(self) -> Metadata:
        if self._metadata is None:
            raise KafkaConnectionError("this client is closed")
        return self._metadata

    def _on_connection_closed(self, conn: Any, reason: Any) -> None:
        if reason is CloseReason.SHUTDOWN or self._metadata is None:
            return
        self.losses += 1
        for (node_id, _), connection in self._conns.items():
            if connection is conn:
                self.shared.drop(BrokerNode(node_id, conn.host, conn.port))
        super()._on_connection_closed(conn, reason)

    async def _get_conn(
        self, node_id: Any, *, group: int = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Connection | None:
        key = node_id, group
        held = self._conns.get(key)
        if (held is None or not held.connected()) and not self._get_conn_lock.locked():
            idle = self.shared.take(self.cluster.broker_metadata(node_id))
            if idle is not None:
                idle._on_close_cb = self._on_connection_closed
                self._conns[key] = idle
                if held is not None:
                    held.close(CloseReason.CONNECTION_BROKEN)
                return idle
        return await super()._get_conn(node_id, group=group, no_hint=no_hint)
