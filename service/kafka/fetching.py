"""Asks brokers for the records of cursors, and waits: from each broker one fetch at a time, while a cursor has room."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from snapreplay.errors import described
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.cursors import PAUSE_S, Answered, Cursor
from snapreplay.service.kafka.fetches import Fetch, Limits, LogWanted, Wanted
from snapreplay.service.kafka.idle_watch import LATE_S, IdleWatch, Place, Watches, broker_of
from snapreplay.service.kafka.log_ends import NO_LEADER, Together
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.kafka.throttling import wait_of
from snapreplay.service.ports import TopicPartition

QUIET_S = 1.0
"""After this long without news, partitions join the watch of their broker."""
HELD_BACK_WAIT_MS = 50
"""For a fetch without a cursor of the same broker that may soon have room again: it would wait for this fetch."""
SHARED_USERS_MIN = 40
"""With fewer clients in a process, few readers begin at the same time, and each is faster alone."""
SHARED_LOG_BYTES, SHARED_BYTES = 64 * 1024, 1024 * 1024
"""Of a partition and in all, in a fetch of several readers: it is for quiet logs and single records."""
# 20 readers of a broker that is gone took 35 % of a core when they tried again every 20 ms (measured).
_PAUSE_S_MAX = 1.0
CANCEL_S = 1.0

log = logging.getLogger(__name__)


class Fetching:
    """The fetches of one reader.

    Attributes:
        client: which sends them.
    """

    def __init__(
        self,
        client: Client,
        limits: Limits,
        wait_ms: Callable[[], int],
        watches: Watches | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        """Take `wait_ms`, which returns how long a fetch may wait at a broker whose watch has refused the partitions.
        `watches` None: quiet partitions are not watched. `is_large`: records hardly fit in a shared fetch."""
        self.client, self._is_large = client, is_large
        self._limits, self._wait_ms, self._watches = limits, wait_ms, watches
        self._loop = asyncio.get_running_loop()
        self._cursors: Sequence[Cursor] = ()
        self._under_way: dict[int, asyncio.Task[None]] = {}  # by broker
        self._ended: set[asyncio.Task[None]] = set()  # that were cancelled
        self._late_at: dict[int, float] = {}  # when a broker that has not answered is silent
        self._failures: dict[int, int] = {}  # of a broker, in a row
        self._quiet_since: dict[int, float] = {}  # when the first of its fetches in a row without news was sent
        self._places: dict[int, Place] = {}  # in the watch of a broker
        self._refused: set[int] = set()  # brokers whose watch has refused the cursors
        self._returned: set[int] = set()  # brokers whose watch, or fetch with other readers, has just ended
        self._alone: set[int] = set()  # brokers whose fetches are not shared with other readers
        self._known_losses: dict[IdleWatch, int] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said = Repeats()

    @property
    def losses(self) -> int:
        """The number of connections that were lost: of its own, and of each watch since it has had these partitions."""
        return self.client.losses + sum(watch.losses - known for watch, known in self._known_losses.items())

    @property
    def is_silent(self) -> bool:
        """Whether a broker should have answered by now, or the last fetch of a cursor has failed."""
        is_late = bool(self._late_at) and min(self._late_at.values()) < self._loop.time()
        return is_late or any(each.is_unanswered for each in self._cursors)

    def begin(self, cursors: Iterable[Cursor]) -> None:
        """Fetch for these instead of those before. Answers under way are ignored."""
        self._cursors = tuple(cursors)
        for task in self._under_way.values():
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)
            task.cancel()
        self._under_way, self._late_at = {}, {}
        for node in list(self._places):
            self._leave(node)
        self._quiet_since, self._refused, self._returned, self._alone = {}, set(), set(), set()
        if self._cursors:
            self.client.shared.track({each.partition.topic for each in self._cursors})
        self.fetch_due()

    def fetch_due(self) -> None:
        """Begin the fetches that are due: a cursor has room again, or its pause is over."""
        now_s, again_s = self._loop.time(), math.inf
        due: dict[int, list[Cursor]] = {}
        held_back: set[int] = set()
        for cursor in self._cursors:
            node = broker_of(self.client, cursor, now_s)
            if cursor.is_held_back:
                held_back.add(node)
            if not cursor.wants_fetch:
                continue
            if node in self._under_way:
                if node in self._places and cursor not in self._places[node].cursors.values():
                    self._leave(node)  # to fetch this one, too
                continue
            if cursor.not_before > now_s:
                again_s = min(again_s, cursor.not_before)
            else:
                due.setdefault(node, []).append(cursor)
        for node, cursors in due.items():
            wait_ms = self._wait_ms() if node in self._refused else self._limits.wait_ms
            wait_ms = min(wait_ms, HELD_BACK_WAIT_MS) if node in held_back else wait_ms
            self._under_way[node] = self._loop.create_task(self._fetch(node, cursors, wait_ms))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(again_s, self.fetch_due) if again_s < math.inf else None

    async def _fetch(self, node: int, cursors: Sequence[Cursor], wait_ms: int) -> None:
        try:
            if node == NO_LEADER:
                await self._look_up(cursors)
            elif node in self._places and self._places[node].is_watched:
                await self._be_watched(node)
            else:
                await self._ask(node, cursors, wait_ms)
        except Exception as error:  # noqa: BLE001 - a task has no caller: the next poll raises it
            for cursor in cursors:
                cursor.fail(error)
            self.wake()
        finally:
            is_current = self._under_way.get(node) is asyncio.current_task()
            if is_current:
                del self._under_way[node]
                self._late_at.pop(node, None)
        if is_current:
            self.fetch_due()

    async def _be_watched(self, node: int) -> None:
        """Wait until there is news, without a connection."""
        self.client.give_back(node)
        try:
            await self._places[node].over
        finally:
            self._leave(node)
        if self.is_silent:
            self.wake()
        self._returned.add(node)
        self._alone.add(node)

    def _leave(self, node: int) -> None:
        place = self._places.pop(node, None)
        if place is not None:
            place.end()

    def _may_watch(self, node: int, began_s: float, *, is_news: bool) -> None:
        """Have the cursors of a broker watched, if its fetches have brought nothing for a while."""
        now_s = self._loop.time()
        here = [each for each in self._cursors if broker_of(self.client, each, now_s) == node]
        if is_news or self._watches is None or not all(each.is_quiet for each in here):
            self._quiet_since.pop(node, None)
            self._refused.discard(node)
            self._leave(node)
        elif now_s - self._quiet_since.setdefault(node, began_s) >= QUIET_S:
            if node in self._places and not self._places[node].over.done():
                return
            logs = {(each.topic_id, each.partition.partition): each for each in here}
            watch = self._watches.of(node, read_committed=self._limits.read_committed)
            place = watch.join(self, logs) if all(each.topic_id for each in here) else None
            if place is None:
                self._refused.add(node)
                return
            self._refused.discard(node)
            self._known_losses.setdefault(watch, watch.losses)
            self._places[node] = place

    async def _ask(self, node: int, cursors: Sequence[Cursor], wait_ms: int) -> None:
        wanted = [Wanted(each.partition, each.fetch_offset, each.epoch_below) for each in cursors]
        ids = {each.partition.topic: each.topic_id for each in cursors}
        # With a rack the leader would only name the replica again (KIP-392).
        rack = "" if any(each.wants_leader for each in cursors) else self._limits.rack
        limits = self._limits._replace(wait_ms=wait_ms, rack=rack)
        is_shared = self._may_share(node)
        began_s = self._loop.time()
        late_at = self._late_at[node] = began_s + wait_ms / 1000 + LATE_S
        late = self._loop.call_at(late_at, self.wake)  # to show that the broker is silent
        is_loss, muted_s = is_shared or node in self._returned, 0.0  # else the client counts it
        try:
            if is_shared:
                answers, muted_s = await _shared_answers(self.client.shared, node, limits, wanted, ids)
            else:
                fetch = Fetch(limits, wanted, ids)
                answer = await self.client.send(node, fetch)
                is_loss = True
                answers = fetch.answers(answer)
        except IncompatibleBrokerVersion:
            raise
        except KafkaError as error:
            for cursor in cursors:
                cursor.disturbances += is_loss
            self._failed(node, cursors, error)
            return
        except Exception as error:  # what another partition's answer holds is for its own fetch to tell
            if not is_shared:
                raise
            self._say("partitions of several readers", node, described(error))
            answers = {}
        else:
            self._failures.pop(node, None)
        finally:
            late.cancel()
        now_s, is_stale, is_news = self._loop.time(), False, False
        was_away = node in self._returned and now_s > late_at  # a new connection would hide an outage
        self._returned.discard(node)
        for cursor, (partition, offset, _) in zip(cursors, wanted, strict=True):
            cursor.disturbances += was_away
            found = answers.get(partition)
            if is_shared and (found is None or not cursor.is_whole(found)):
                is_news = True  # its own fetch follows
                continue
            if found is None:
                cursor.pause(now_s)
                is_news = True
                continue
            is_news |= cursor.is_news(found)
            if found.error_code:
                name, code = for_code(found.error_code).__name__, found.error_code
                self._say(f"{partition} from offset {offset}", node, f"{name} ({code})")
            is_stale |= cursor.answered(offset, found, now_s)
            if cursor.has_something or cursor.doubt or cursor.is_at_stop:
                self.wake()
        if is_stale:
            self.client.shared.doubt()
        if muted_s:  # the broker reads its own connection, but the quota is used up
            for cursor in cursors:
                cursor.pause(now_s, muted_s)
        if is_shared:
            self._returned.add(node)
            if is_news or not all(each.is_quiet for each in cursors):
                self._alone.add(node)
        self._may_watch(node, began_s, is_news=is_news)

    def _may_share(self, node: int) -> bool:
        """Say whether the next fetch from a broker is shared with other readers. The first fetch is shared, and later
        ones while nothing comes. At most 64 KiB of each partition."""
        limits, is_many = self._limits, self.client.shared.users >= SHARED_USERS_MIN
        is_usual = not limits.rack and limits.min_bytes == 1 and not self._is_large
        return is_many and is_usual and node not in self._alone and node not in self._refused

    def _failed(self, node: int, cursors: Sequence[Cursor], error: KafkaError) -> None:
        if not self.is_silent:
            self.wake()  # to show that it is
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        pause_s = min(PAUSE_S * 2.0 ** min(failures - 1, 16), _PAUSE_S_MAX)
        for cursor in cursors:
            cursor.failed(self._loop.time(), pause_s)
        self._alone.add(node)
        self._returned.discard(node)  # the loss is counted
        self._quiet_since.pop(node, None)
        self._leave(node)
        self._say("some partitions", node, described(error))

    def _say(self, what: str, node: int, why: str) -> None:
        line = self._said.line(f"fetching {what} from broker {node} failed: {why}", self._loop.time())
        if line is not None:
            log.warning(line)

    async def _look_up(self, cursors: Sequence[Cursor]) -> None:
        """Look for the leaders of these cursors. A topic that no broker knows is missing."""
        try:
            await self.client.shared.track({each.partition.topic for each in cursors})
            if all(broker_of(self.client, each, 0.0) == NO_LEADER for each in cursors):
                await self.client.shared.refresh()
        except KafkaError as error:
            self._failed(NO_LEADER, cursors, error)
            return
        now_s, cluster = self._loop.time(), self.client.cluster
        for cursor in cursors:
            if broker_of(self.client, cursor, now_s) == NO_LEADER:
                cursor.pause(now_s)
                topic = cursor.partition.topic
                if topic not in cluster.topics() and topic not in cluster.unauthorized_topics:
                    cursor.missing(now_s)

    async def news(self, timeout_ms: float) -> None:
        """Wait until a fetch brings something, an error or a doubt, until `wake`, or until the time is over."""
        waiter = self._waiter = self._loop.create_future()
        late = self._loop.call_later(timeout_ms / 1000, self.wake)
        try:
            await waiter
        finally:
            late.cancel()
            self._waiter = None

    def wake(self) -> bool:
        """End `news`; return whether it waited."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return False
        waiter.set_result(None)
        return True

    async def close(self) -> None:
        """End the fetches; the client is not closed."""
        self.begin(())
        self.wake()
        ended = self._ended.union(*(watch.part(self) for watch in self._known_losses))
        if ended:
            await asyncio.wait(ended, timeout=CANCEL_S)


async def _shared_answers(
    shared: Shared, node: int, limits: Limits, wanted: Sequence[Wanted], ids: Mapping[str, str]
) -> tuple[dict[TopicPartition, Answered], float]:
    """Return the answers to a fetch that other readers may join, as far as it has them, and how long a quota makes the
    reader wait afterwards. Raises KafkaError."""
    limits = limits._replace(
        partition_bytes=min(limits.partition_bytes, SHARED_LOG_BYTES), max_bytes=min(limits.max_bytes, SHARED_BYTES)
    )
    key = node, limits, all(ids.values())
    if key not in shared.shared_fetches:
        shared.shared_fetches[key] = Together(partial(_shared_fetch, shared, node, limits), in_turn=False)
    named = [(ids[each.partition.topic] if key[-1] else "", each) for each in wanted]
    found = await shared.shared_fetches[key].ask(named, shared.wait_s())
    answers = {each.partition: answered for (_, each), (answered, _) in found.items()}
    return answers, max((muted_s for _, muted_s in found.values()), default=0.0)


async def _shared_fetch(
    shared: Shared, node: int, limits: Limits, asked: frozenset[LogWanted]
) -> dict[LogWanted, tuple[Answered, float]]:
    """Fetch once for several readers, each partition from one offset and of one topic id only: the others are absent.
    Each fetch has a connection of its own, since the broker may keep it for a while."""
    ids, named = dict[str, str](), dict[TopicPartition, LogWanted]()
    for each in asked:
        topic_id, (partition, *_) = each
        if ids.setdefault(partition.topic, topic_id) == topic_id:
            named.setdefault(partition, each)
    fetch, client = Fetch(limits, [wanted for _, wanted in named.values()], ids), Client(shared, is_reading=True)
    shared.hold()  # without `start`, which waits for metadata, perhaps from a frozen broker
    client.is_open = True
    try:
        answer = await client.send(node, fetch)
    finally:
        await client.close()
    answers, muted_s = fetch.answers(answer), wait_of(answer)
    return {each: (answers[partition], muted_s) for partition, each in named.items() if partition in answers}
