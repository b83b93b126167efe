"""Asks brokers for the records of cursors, and waits: from each broker one fetch at a time, while a cursor has room."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.errors import described
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.cursors import PAUSE_S, Answered, Cursor
from snapreplay.service.kafka.fetches import Fetch, Limits, Wanted
from snapreplay.service.kafka.shared import SharingClient
from snapreplay.service.kafka.shutdown import close_client
from snapreplay.service.ports import TopicPartition

LATE_S = 1.0
"""After the wait of a fetch, a broker that has not answered is silent."""
HELD_BACK_WAIT_MS = 50
"""For a fetch without a cursor of the same broker that may soon have room again: it would wait for this fetch."""
NO_LEADER = -1
# 20 readers of a broker that is gone took 35 % of a core when they tried again every 20 ms (measured).
_PAUSE_S_MAX = 1.0
CANCEL_S = 1.0

log = logging.getLogger(__name__)


class News:
    """What a poll waits for. One task at a time."""

    _waiter: asyncio.Future[None] | None = None

    async def news(self, timeout_ms: float) -> None:
        """Wait until a fetch brings something, an error or a doubt, until `wake`, or until the time is over."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        late = loop.call_later(timeout_ms / 1000, self.wake)
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


class Brokers:
    """The brokers of cursors, and what becomes of their answers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._failures: dict[int, int] = {}  # of a broker, in a row
        self._said = Repeats()

    def broker_of(self, client: SharingClient, cursor: Cursor, now_s: float) -> int:
        """Return the broker to fetch from; `NO_LEADER`: none is known."""
        replica = cursor.replica(now_s)
        if replica is not None and client.cluster.broker_metadata(replica) is not None:
            return replica
        leader = client.cluster.leader_for_partition(ClientPartition(*cursor.partition))
        return NO_LEADER if leader is None else int(leader)

    def answered(self, client: SharingClient, node: int, cursor: Cursor, offset: int, answer: Answered) -> None:
        """Give a cursor the answer to its fetch from this offset."""
        if answer.error_code:
            name = for_code(answer.error_code).__name__
            self.say(f"{cursor.partition} from offset {offset}", node, f"{name} ({answer.error_code})")
        if cursor.answered(offset, answer, self._loop.time()):
            client.force_metadata_update()

    def answers(
        self, node: int, cursors: Iterable[Cursor], fetch: Fetch, answer: Any
    ) -> dict[TopicPartition, Answered] | None:
        """Return the answer for each partition; None if the fetch was refused as a whole."""
        try:
            found = fetch.answers(answer)
        except KafkaError as error:
            for cursor in cursors:
                cursor.disturbances += 1
            self.failed(node, cursors, error)
            return None
        self._failures.pop(node, None)
        return found

    def failed(self, node: int, cursors: Iterable[Cursor], error: KafkaError) -> None:
        """Note a fetch without an answer: the next one is the later, the more have failed."""
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        pause_s = min(PAUSE_S * 2.0 ** min(failures - 1, 16), _PAUSE_S_MAX)
        for cursor in cursors:
            cursor.failed(self._loop.time(), pause_s)
        self.say("some partitions", node, described(error))

    def say(self, what: str, node: int, why: str) -> None:
        line = self._said.line(f"fetching {what} from broker {node} failed: {why}", self._loop.time())
        if line is not None:
            log.warning(line)

    async def look_up(self, client: SharingClient, cursors: Sequence[Cursor]) -> None:
        """Look for the leaders of these cursors. A topic that no broker knows is missing."""
        try:
            await client.set_topics({each.partition.topic for each in cursors})
            if all(self.broker_of(client, each, 0.0) == NO_LEADER for each in cursors):
                await client.force_metadata_update()
        except KafkaError as error:
            self.failed(NO_LEADER, cursors, error)
            return
        now_s, cluster = self._loop.time(), client.cluster
        for cursor in cursors:
            if self.broker_of(client, cursor, now_s) == NO_LEADER:
                cursor.pause(now_s)
                topic = cursor.partition.topic
                if topic not in cluster.topics() and topic not in cluster.unauthorized_topics:
                    cursor.missing(now_s)


class Fetching(Brokers, News):
    """The fetches of one reader on a client of its own.

    Attributes:
        client: which sends them.
    """

    def __init__(self, client: SharingClient, limits: Limits, *, is_patient: bool) -> None:
        """Take `is_patient`: whether a fetch waits long for records at the broker."""
        super().__init__(limits)
        self.client, self._is_patient = client, is_patient
        client.on_lost = self._lost
        self._cursors: Sequence[Cursor] = ()
        self._under_way: dict[int, asyncio.Task[None]] = {}  # by broker
        self._ended: set[asyncio.Task[None]] = set()  # that were cancelled
        self._late_at: dict[int, float] = {}  # when a broker that has not answered is silent
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether a broker should have answered by now, or the last fetch of a cursor has failed."""
        is_late = bool(self._late_at) and min(self._late_at.values()) < self._loop.time()
        return is_late or any(each.is_unanswered for each in self._cursors)

    def begin(self, cursors: Iterable[Cursor]) -> None:
        """Fetch for these instead of those before. What is under way for those means nothing any more."""
        self._cursors = tuple(cursors)
        for task in self._under_way.values():
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)
            task.cancel()
        self._under_way, self._late_at = {}, {}
        if self._cursors:
            if self._is_patient:
                self.client.give_back()  # else the next fetch waits for the answer to the last, futile one
            self.client.set_topics({each.partition.topic for each in self._cursors})
        self.go_on()

    def go_on(self) -> None:
        """Begin the fetches that are due: a cursor has room again, or its pause is over."""
        now_s, again_s = self._loop.time(), math.inf
        due: dict[int, list[Cursor]] = {}
        held_back: set[int] = set()
        for cursor in self._cursors:
            node = self.broker_of(self.client, cursor, now_s)
            if cursor.is_held_back:
                held_back.add(node)
            if not cursor.wants_fetch or node in self._under_way:
                continue
            if cursor.not_before > now_s:
                again_s = min(again_s, cursor.not_before)
            else:
                due.setdefault(node, []).append(cursor)
        for node, cursors in due.items():
            wait_ms = min(self._limits.wait_ms, HELD_BACK_WAIT_MS) if node in held_back else self._limits.wait_ms
            self._under_way[node] = self._loop.create_task(self._fetch(node, cursors, wait_ms))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(again_s, self.go_on) if again_s < math.inf else None

    def _lost(self, _: int) -> None:
        for cursor in self._cursors:
            cursor.disturbances += 1

    async def _fetch(self, node: int, cursors: Sequence[Cursor], wait_ms: int) -> None:
        try:
            if node == NO_LEADER:
                await self.look_up(self.client, cursors)
            else:
                await self._ask(node, cursors, wait_ms)
        except Exception as error:  # noqa: BLE001 - whoever polls is told
            for cursor in cursors:
                cursor.fail(error)
            self.wake()
        finally:
            is_current = self._under_way.get(node) is asyncio.current_task()
            if is_current:
                del self._under_way[node]
                self._late_at.pop(node, None)
        if is_current:
            self.go_on()

    async def _ask(self, node: int, cursors: Sequence[Cursor], wait_ms: int) -> None:
        wanted = [Wanted(each.partition, each.fetch_offset, each.epoch_below) for each in cursors]
        ids = {each.partition.topic: each.topic_id for each in cursors}
        fetch = Fetch(self._limits._replace(wait_ms=wait_ms), wanted, ids)
        self._late_at[node] = self._loop.time() + wait_ms / 1000 + LATE_S
        try:
            answer = await self.client.send(node, fetch)
        except IncompatibleBrokerVersion:
            raise
        except KafkaError as error:
            self.failed(node, cursors, error)
            return
        answers = self.answers(node, cursors, fetch, answer)
        if answers is None:
            return
        for cursor, (partition, offset, _) in zip(cursors, wanted, strict=True):
            if partition not in answers:
                cursor.pause(self._loop.time())
                continue
            self.answered(self.client, node, cursor, offset, answers[partition])
            if cursor.has_something or cursor.doubt:
                self.wake()

    async def close(self) -> None:
        """End the fetches, and close the client. Bounded, never raises."""
        self.begin(())
        self.wake()
        if self._ended:
            await asyncio.wait(self._ended, timeout=CANCEL_S)
        await close_client(self.client)
