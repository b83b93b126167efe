"""The client of brokers, and what the clients of one event loop share: metadata, requests for the bounds of logs, and
idle connections. Without that, a process with 200 partitions spends most of its time on decoding metadata.

A connection belongs to one client until it is given back: no request waits behind another client's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError, StaleMetadata, for_code
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.counted import some
from snapreplay.errors import described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka import connection as connections
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.connection import AnyRequest, Connection, closed
from snapreplay.service.kafka.log_ends import NO_LEADER, LogEnds, Together
from snapreplay.service.kafka.patience import Patience
from snapreplay.service.kafka.refusals import BrokerAddress, NotConnected, Verdicts, why_silent
from snapreplay.service.kafka.requests import COORDINATOR_AWAY, Leaders, error_codes
from snapreplay.service.kafka.throttling import THROTTLING, ThrottledWait, wait_of
from snapreplay.service.ports import TopicPartition

if TYPE_CHECKING:
    from snapreplay.service.kafka.cursors import Answered
    from snapreplay.service.kafka.fetches import Limits, LogWanted

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command without a log prints its error only

FRESH_SECONDS = 1.0
"""A client that starts gets metadata that is no older: it may be there because another one met a stale leader."""
REPEATED_SECONDS = 0.1
"""Between an answer and the same question, as in Kafka's own clients: without it, clients whose partition has no leader
ask thousands of times a second."""
WAIT_S_PER_CLIENT, WAIT_S_MAX = 0.000_025, 0.005
"""How long a question waits for others that its request can carry: per open client, and at most."""
IDLE_MAX = 32
"""Maximum number of unused connections that are kept per broker."""
IDLE_SECONDS = 5.0
DRAIN_SECONDS = 2.0
"""How long a connection may wait for an answer that no client needs; then it is closed."""
COORDINATOR_PAUSE_S = 0.05
CONTROLLER_PAUSES_S = (0.0, *[0.2] * 14)
"""Before each attempt. There may be no controller for a moment, when all were too busy for heartbeats."""
_UNREACHED = (OSError, TimeoutError, KafkaError)
_NO_ANSWER = (RequestTimedOutError, KafkaConnectionError, NotConnected)

_SAID = Repeats()


def _say(text: str) -> None:
    line = _SAID.line(text, time.monotonic())
    if line is not None:
        log.warning("%s", line)


class BrokerNode(NamedTuple):
    """A broker, and where it listens."""

    node_id: int
    host: str
    port: int


class Shared:
    """What the clients of one event loop share. Nothing is open without a client, unless it is held.

    Attributes:
        cluster: the newest metadata, of all topics that a client has asked for.
        version: the number of answers with metadata.
        log_ends: asks leaders for all clients, on a connection of its own to each.
        shared_fetches: fetch for several readers, by broker, limits, and whether by topic id.
        users: the number of clients that are open.
        patience: of the producers, by coordinator.
        coordinators: (kind, group or transactional id) → the node id of the coordinator that was found last.
        verdicts: why brokers close connections, as far as it was found out.
    """

    def __init__(self, settings: Settings) -> None:
        self.cluster, self.version = ClusterMetadata(), 0
        self.coordinators: dict[tuple[int, str], int] = {}
        self.shared_fetches: dict[tuple[int, Limits, bool], Together[LogWanted, tuple[Answered, float]]] = {}
        self.users = 0
        self.patience: dict[int, Patience] = {}
        self.verdicts = Verdicts()
        self.arguments: dict[str, Any] = {}
        self._settings = settings
        self._topics: frozenset[str] = frozenset()
        self._answered: frozenset[str] = frozenset()  # topics of the newest answer
        self._asked_at = -FRESH_SECONDS
        self._failures: dict[BrokerAddress, BaseException] = {}  # of the last refresh, if no broker answered
        self._refreshed: asyncio.Future[bool] | None = None
        self._wanted = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._own = Client(self)
        self.log_ends = LogEnds(self._own)
        self._idle: dict[BrokerNode, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def wait_s(self) -> float:
        """Return how long a question waits for those of others: the more clients there are, the more will ask."""
        return min(WAIT_S_PER_CLIENT * self.users, WAIT_S_MAX)

    # ------------------------------------------------------------------------ its life

    def hold(self) -> None:
        """Keep what is open, also while no client is; `leave` once afterwards."""
        self.users += 1

    async def enter(self) -> None:
        """Begin to use it, with metadata that is fresh; `leave` once afterwards.

        Raises:
            NotConnected: no broker answers; there is nothing to leave.
            UsageError: a PEM file or the token provider cannot be loaded.
        """
        self.users += 1
        try:
            if self._keeping is None:
                self.arguments = client_arguments(self._settings)
                self._own.is_open = True
                self._keeping = asyncio.create_task(self._keep_fresh())
            if time.monotonic() - self._asked_at >= FRESH_SECONDS:
                await self.freshen()
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """End using it; the last one closes everything."""
        self.users -= 1
        if self.users or self._keeping is None:
            return
        keeping, self._keeping = self._keeping, None
        keeping.cancel()
        if self._refreshed is not None and not self._refreshed.done():
            self._refreshed.set_result(False)
        left = [each for idle in self._idle.values() for each in idle] + self._own.let_go()
        self.cluster, self.coordinators, self._idle, self._refreshed = ClusterMetadata(), {}, {}, None
        self._answered, self._failures = frozenset(), {}
        self._wanted.clear()
        self._asked_at = -FRESH_SECONDS
        await closed(left)
        await asyncio.wait([keeping])

    # ------------------------------------------------------------------------ metadata

    def refresh(self, topics: Collection[str] = ()) -> asyncio.Future[bool]:
        """Refresh the metadata, from now on with these topics too. The future says whether a broker has answered; the
        answer is no older than this call."""
        if self._keeping is None:
            raise KafkaConnectionError("this client is closed")
        self._topics = self._topics.union(topics)
        if self._refreshed is None or not self._wanted.is_set():
            self._refreshed = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return asyncio.shield(self._refreshed)

    async def freshen(self) -> None:
        """Refresh the metadata.

        Raises:
            NotConnected: no broker answers.
        """
        if not await self.refresh():
            timeout_s = self._settings.request_timeout_ms / 1000
            why = sorted(f"{address} ({why_silent(error, timeout_s)})" for address, error in self._failures.items())
            said = f"no broker answers at {', '.join(why)}"
            if not why:  # those who answered know no brokers
                said = f"no broker answers: {some(self._settings.bootstrap_servers)}"
            raise NotConnected(said, self._failures, self.verdicts)

    def track(self, topics: Collection[str]) -> asyncio.Future[bool]:
        """Include these topics in the metadata. The future is done once they are."""
        if not self._answered.issuperset(topics):
            return self.refresh(topics)
        known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        known.set_result(True)
        return known

    async def pending(self) -> None:
        """Wait for the answer that was asked for last."""
        if self._refreshed is not None:
            await asyncio.shield(self._refreshed)

    def doubt(self) -> None:
        """Ask for the metadata soon: a broker was not reached, or a connection was lost."""
        if self._keeping is not None and asyncio.current_task() is not self._keeping:
            self.refresh()

    def distrust(self) -> None:
        """Trust nothing known: a client made no progress with it."""
        self._asked_at = -FRESH_SECONDS
        for place in list(self._idle):
            self.drop(place)

    async def _keep_fresh(self) -> None:
        max_age_s = self.arguments["metadata_max_age_ms"] / 1000
        answered: frozenset[str] | None = None
        answered_at = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max_age_s):
                    await self._wanted.wait()
            if self._topics == answered:
                await asyncio.sleep(answered_at + REPEATED_SECONDS - time.monotonic())
            self._wanted.clear()
            refreshed, answered, is_answered = self._refreshed, self._topics, False
            try:
                is_answered = await self._ask(answered)
                self._answered = answered if is_answered else self._answered
            finally:  # also when the last user leaves
                if refreshed is not None and not refreshed.done():
                    refreshed.set_result(is_answered)
            answered_at = time.monotonic()

    async def _ask(self, topics: Collection[str]) -> bool:
        """Ask the known brokers in turn, then the bootstrap addresses."""
        request, asked_at = Leaders(sorted(topics)), time.monotonic()
        nodes, hosts = list(self.cluster.brokers()), collect_hosts(self._settings.bootstrap_servers)
        known = [
            (each.host, each.port, partial(self._own.send, each.nodeId)) for each in random.sample(nodes, len(nodes))
        ]
        bootstrap = [(host, port, partial(self._send_to, host, port)) for host, port, _ in hosts]
        failures: dict[BrokerAddress, BaseException] = {}
        for host, port, send in [*known, *bootstrap]:
            address = BrokerAddress(host, port)
            try:
                if self._known(await send(request), asked_at):
                    self._failures = {}
                    return True
            except Exception as error:  # noqa: BLE001 - a library's defect must not end the only task that asks
                _say(f"no metadata from {address}: {described(error)}")
                failures |= error.failures if isinstance(error, NotConnected) else {address: error}
        self._failures = failures
        return False

    async def _send_to(self, host: str, port: int, request: Leaders) -> Any:
        connection = await connections.connect(host, port, self.arguments)
        try:
            return await connection.send(request)
        finally:
            connection.close()

    def _known(self, answer: Any, asked_at: float) -> bool:
        """Take an answer. A broker that the controllers have fenced names no brokers: that is no answer."""
        if answer.brokers:
            self.cluster.update_metadata(answer)
            self._asked_at, self.version = asked_at, self.version + 1
        return bool(answer.brokers)

    # ------------------------------------------------------------------------ idle connections

    def take(self, node: BrokerNode) -> Connection | None:
        """Return the most recently used connection to this broker that no client uses."""
        idle = self._idle.get(node, [])
        for connection in [each for each in idle if not each.is_open or each.is_due]:
            idle.remove(connection)
            connection.close()
        for index in reversed(range(len(idle))):
            # Others have an answer to come, to what a reader asked before it ended, or the broker does not read them.
            if idle[index].oldest is None and idle[index].muted_until <= time.monotonic():
                return idle.pop(index)
        return None

    def give_back(self, node_id: int, connection: Connection) -> None:
        idle = self._idle.setdefault(BrokerNode(node_id, connection.host, connection.port), [])
        if not self.users or not connection.is_open or len(idle) >= IDLE_MAX:
            connection.close()
            return
        connection.on_lost = None
        idle.append(connection)
        if self._sweep is None:
            self._close_unused()
        if (oldest := connection.oldest) is not None:
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, _close_unanswered, connection, oldest)

    def drop(self, node: BrokerNode) -> None:
        """Close what no client uses there: a connection to this broker was lost."""
        for connection in self._idle.pop(node, ()):
            connection.close()

    def _close_unused(self) -> None:
        """Close what has been idle for long, now and then until nothing is idle."""
        idle_s = min(IDLE_SECONDS, connections.idle_s(self.arguments))
        unused_since = time.monotonic() - idle_s
        for idle in self._idle.values():
            for connection in [each for each in idle if each.used_at <= unused_since]:
                idle.remove(connection)
                connection.close()
        is_any = any(self._idle.values())
        self._sweep = asyncio.get_running_loop().call_later(idle_s / 2, self._close_unused) if is_any else None


def _close_unanswered(connection: Connection, request: object) -> None:
    if connection.oldest is request:
        connection.close()


class Client:
    """Asks brokers for one user, on connections that only it uses, one per broker and lane (`ConnectionGroup`).

    Attributes:
        shared: what it shares.
        is_open: whether it has started and is not closed; it may start again.
        losses: connections that were lost.
    """

    def __init__(self, shared: Shared, *, is_reading: bool = False) -> None:
        """Take `is_reading`: requests under way may be dropped when it closes."""
        self.shared = shared
        self.is_open = False
        self.losses = 0
        self._is_reading = is_reading
        self._held: dict[tuple[int, int], Connection] = {}
        self._connecting: defaultdict[tuple[int, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._starting = asyncio.Lock()
        self._throttled_until = 0.0  # of the monotonic clock: before, what is written only lengthens the wait
        self._deadline: asyncio.Timeout | None = None  # which each wait moves

    @property
    def cluster(self) -> ClusterMetadata:
        """The newest metadata."""
        return self.shared.cluster

    # ------------------------------------------------------------------------ its life

    async def start(self) -> None:
        """Make sure that it is open, with fresh metadata. Raises as `Shared.enter`."""
        async with self._starting:
            if not self.is_open:
                await self.shared.enter()
                self.is_open = True

    async def close(self) -> None:
        """Close it. Bounded, never raises; done also where the caller is cancelled meanwhile."""
        if self.is_open:
            self.give_back()
            left = self.let_go()
            try:
                await closed(left)
            finally:
                await self.shared.leave()

    def let_go(self) -> list[Connection]:
        """Send nothing more; return the connections, which the caller closes."""
        self.is_open = False
        left = list(self._held.values())
        self._held.clear()
        return left

    def give_back(self, only: int | None = None) -> None:
        """Give back every connection on which nothing is under way, or those to one broker. Of a reader, also those on
        which only answers are under way that nothing awaits."""
        for (node, group), connection in list(self._held.items()):
            if only in (None, node) and (not connection.is_awaited if self._is_reading else connection.oldest is None):
                del self._held[node, group]
                self.shared.give_back(node, connection)

    # ------------------------------------------------------------------------ questions

    async def send(
        self, node: int, request: AnyRequest, *, group: int = ConnectionGroup.DEFAULT, kept_s: float = 0.0
    ) -> Any:
        """Send to this broker, when it reads this connection again; return its answer. `kept_s`: how long the broker
        may keep the request before it answers; without it, the request's own `wait_ms`.

        Raises:
            NotConnected: no connection can be made. Nothing was sent.
            IncompatibleBrokerVersion: the broker does not speak it. Nothing was sent.
            RequestTimedOutError, KafkaConnectionError: no answer. The connection is lost.
        """
        connection = await self._connected(node, group)
        while (muted_s := connection.muted_until - time.monotonic()) > 0:
            await asyncio.sleep(muted_s)
            connection = await self._connected(node, group)  # another, if it was lost or given back meanwhile
        answer = await connection.send(request, kept_s or getattr(request, "wait_ms", 0) / 1000)
        if seconds := wait_of(answer):
            self._throttled(connection, answer, seconds)
        return answer

    async def ready(self, node: int, *, group: int = ConnectionGroup.DEFAULT) -> bool:
        """Say whether a broker can be connected."""
        try:
            await self._connected(node, group)
        except NotConnected:
            return False
        return True

    async def versions(self, node: int) -> dict[int, tuple[int, int]]:
        """Return the oldest and newest version of each request that a broker speaks, by API key."""
        return (await self._connected(node, ConnectionGroup.DEFAULT)).versions

    async def anybody(self, but: Collection[int] = ()) -> int:
        """Return the node id of a broker that can be connected: for some time the cluster also lists brokers that are
        gone.

        Raises:
            NotConnected: none can, except for those in `but`.
        """
        nodes = [broker.nodeId for broker in self.cluster.brokers() if broker.nodeId not in but]
        failures: dict[BrokerAddress, BaseException] = {}
        for node in random.sample(nodes, len(nodes)):
            try:
                await self._connected(node, ConnectionGroup.DEFAULT)
            except NotConnected as error:
                failures |= error.failures
            else:
                return int(node)
        where = some(f"{each.host}:{each.port}" for each in self.cluster.brokers())
        said = f"no broker answers at its advertised address (advertised.listeners): {where}"
        raise NotConnected(said, failures, self.shared.verdicts)

    async def ask_any(self, request: AnyRequest) -> tuple[int, Any]:
        """Ask one broker after the other; return the node id of the first that answers, and its answer. A broker may
        be connected and silent.

        Raises:
            NotConnected: none can be connected.
            RequestTimedOutError, KafkaConnectionError: those that can stay silent.
        """
        silent: dict[int, KafkaError] = {}
        while True:
            try:
                node = await self.anybody(silent)
            except NotConnected:
                if not silent:
                    raise
                raise silent.popitem()[1] from None
            try:
                return node, await self.send(node, request)
            except _NO_ANSWER as error:
                silent[node] = error

    async def coordinator(self, name: str, kind: int = CoordinationType.GROUP) -> int:
        """Return the node that coordinates this group or transactional id.

        Raises:
            KafkaError: as `ask_any`, or the broker's refusal; its text ends with the name.
        """
        _, answer = await self.ask_any(FindCoordinatorRequest(name, kind))
        if answer.error_code:
            raise for_code(answer.error_code)(f"no coordinator of {name}")
        return int(answer.coordinator_id)

    async def ask_coordinator(
        self,
        name: str,
        request: AnyRequest,
        kind: int = CoordinationType.GROUP,
        *,
        again: Collection[int] = COORDINATOR_AWAY,
    ) -> Any:
        """Ask the coordinator of this group or transactional id, again while its answer has one of the codes `again`.
        The caller sets the deadline. The cause of the cancellation is why it was asked again.

        Raises:
            KafkaError: as `coordinator`, or there was no answer.
        """
        coordinators, key = self.shared.coordinators, (kind, name)
        trouble: KafkaError | None = None
        try:
            while True:
                is_old = key in coordinators
                try:
                    if not is_old:
                        coordinators[key] = await self.coordinator(name, kind)
                    answer = await self.send(coordinators[key], request)
                except KafkaError as error:
                    coordinators.pop(key, None)
                    if not is_old and getattr(error, "errno", None) not in COORDINATOR_AWAY:
                        raise
                    trouble = error
                else:
                    codes = error_codes(answer).keys()
                    if codes & COORDINATOR_AWAY:
                        coordinators.pop(key, None)
                    if not (refused := codes & set(again)):
                        return answer
                    trouble = for_code(min(refused))(f"asking the coordinator of {name}")
                await asyncio.sleep(COORDINATOR_PAUSE_S)
        except asyncio.CancelledError as ended:
            raise ended from trouble

    async def ask_controller(self, request: AnyRequest) -> Any:
        """Ask the controller, as soon as there is one.

        Raises:
            NotConnected: no broker that answers knows one that can be connected: brokers are starting, or gone.
        """
        why = NotConnected("no controller is known")
        for pause_s in CONTROLLER_PAUSES_S:
            await asyncio.sleep(pause_s)
            if pause_s or self.cluster.controller is None:
                await self.shared.refresh()
            if self.cluster.controller is not None:
                try:
                    return await self.send(self.cluster.controller.nodeId, request)
                except NotConnected as error:
                    why = error
        raise why

    def leader(self, partition: TopicPartition) -> int:
        """Return the node that leads a partition; NO_LEADER if none is known."""
        leader = self.cluster.leader_for_partition(ClientPartition(*partition))
        return NO_LEADER if leader is None else int(leader)

    # ------------------------------------------------------------------------ connections

    async def _connected(self, node: int, group: int) -> Connection:
        key = node, group
        held = self._held.get(key)
        if held is not None and held.is_open and not held.is_due:
            return held
        async with self._connecting[key]:
            held = self._held.get(key)
            if held is not None and held.is_open and not held.is_due:
                return held
            if not self.is_open:
                raise KafkaConnectionError("this client is closed")
            known = self.cluster.broker_metadata(node)
            try:
                if known is None:
                    raise StaleMetadata(f"broker {node} is not in the metadata")
                idle = self.shared.take(BrokerNode(node, known.host, known.port))
                made = idle or await connections.connect(known.host, known.port, self.shared.arguments)
            except _UNREACHED as error:
                if held is not None and held.is_open:
                    held.put_off()
                    return held
                self.shared.doubt()
                _say(f"no connection to broker {node}: {described(error)}")
                failures = {} if known is None else {BrokerAddress(known.host, known.port): error}
                said = f"no connection to broker {node}: {described(error)}"
                raise NotConnected(said, failures, self.shared.verdicts) from error
            if held is not None:
                held.close()
            if not self.is_open:  # closed meanwhile, by another task
                made.close()
                raise KafkaConnectionError("this client is closed")
            made.on_lost = self._lost
            self._held[key] = made
            return made

    def _lost(self, lost: Connection) -> None:
        self.losses += 1
        for node, group in [key for key, each in self._held.items() if each is lost]:
            del self._held[node, group]
            self.shared.drop(BrokerNode(node, lost.host, lost.port))
        self.shared.doubt()

    # ------------------------------------------------------------------------ quotas

    def _throttled(self, by: Connection, answer: object, seconds: float) -> None:
        until = time.monotonic() + seconds
        by.muted_until = max(by.muted_until, until)
        name = type(answer).__name__.partition("Response")[0]
        client_id = str(self.shared.arguments.get("client_id", ""))
        THROTTLING.note(ThrottledWait(name, str(by), client_id, seconds, until))
        if not self._is_reading:
            self._throttled_until = max(self._throttled_until, until)
            if self._deadline is not None and not self._deadline.expired():
                self._deadline.reschedule((self._deadline.when() or 0.0) + seconds)

    @asynccontextmanager
    async def writing(self, within_seconds: float) -> AsyncIterator[None]:
        """Begin the block once no quota makes the broker wait. Its deadline is moved by each wait meanwhile.

        Raises:
            TimeoutError: the block has taken longer.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:
                self._deadline = deadline
                await asyncio.sleep(max(0.0, self._throttled_until - time.monotonic()))
                deadline.reschedule(loop.time() + within_seconds)
                yield
        finally:
            self._deadline = None

    def end_writing(self) -> None:
        """Let the block that is `writing` end now, with TimeoutError."""
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())
