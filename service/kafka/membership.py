"""The consumer that says which partitions are ours, and reads nothing.

It subscribes to the increments topic only, so that several inputs cannot be split over members; everything is
paused in the first line of the assigned callback (measured: not one fetch), and it is polled for ever in its
own task. Restores and slow handlers run elsewhere, so heartbeats never wait for them. It is a hint about who
works on what; safety comes from the fence.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.client import ConnectionGroup
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.closing import CLOSE_S, bounded, close_consumer
from snapreplay.service.kafka.config import membership_arguments
from snapreplay.service.kafka.errors import CLIENT_ERRORS, describe
from snapreplay.service.kafka.leave import StaticLeaveGroup
from snapreplay.service.ports import TopicPartition
from snapreplay.service.settings import Settings

log = logging.getLogger(__name__)

Callback = Callable[[set[int]], Awaitable[None]]

EVICTIONS_SUSPECT = 3
LEAVE_SECONDS = 5 * CLOSE_S  # of our own accord; a stop that has less time says so
_POLL_MS = 200
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 10.0


class Membership:
    """One member of the app's group. `run` once, in the loop that is to carry it; `leave` in the same loop.

    `on_revoked(partitions)` is awaited for at most timeouts.revoke_ms, then goes on by itself while the group
    does without it; never called with an empty set. `on_assigned(partitions)` gets the whole new assignment,
    possibly empty, possibly the same again, and must only start things: no heartbeat is sent meanwhile.
    Neither may raise.
    """

    def __init__(
        self,
        settings: Settings,
        app_id: str,
        increments_topic: str,
        on_assigned: Callback,
        on_revoked: Callback,
    ) -> None:
        self._settings = settings
        self._group_id = app_id
        self._topic = increments_topic
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._consumer: AIOKafkaConsumer | None = None
        self._leaving = asyncio.Event()
        self._ended = asyncio.Event()
        self._callbacks: set[asyncio.Task[None]] = set()
        self._known_member_id = ""
        self._without_leave = False
        self._evictions: deque[float] = deque(maxlen=EVICTIONS_SUSPECT)
        self.assignment: frozenset[int] = frozenset()
        """Ours, as of the last assignment. Empty before the first and after leaving."""
        self.last_error: str | None = None
        """Why there is no connection at present; None when all is well."""

    @property
    def member_id(self) -> str:
        """Given by the coordinator; empty while we are no member."""
        coordinator = self._coordinator
        return str(coordinator.member_id) if coordinator is not None else ""

    @property
    def trouble(self) -> str | None:
        """Why the group does not hear from us at present; None when it does. Any thread.

        An idle service learns of an absent broker nowhere else: its readers wait for records without an error.
        """
        coordinator = self._coordinator
        if coordinator is not None and coordinator.coordinator_id is None:
            return self.last_error or "no broker answers for the app's group"
        return self.last_error

    @property
    def suspects_duplicate(self) -> bool:
        """Whether another process seems to run with our instance id.

        Two such processes throw each other out with every heartbeat, for ever, and no call fails (measured):
        each of them gets a new member id each time, which a rebalance never gives.
        """
        window_s = max(10.0, 10 * self._settings.group.heartbeat_interval_ms / 1000)
        full = len(self._evictions) == EVICTIONS_SUSPECT
        return full and time.monotonic() - self._evictions[0] < window_s

    async def run(self) -> None:
        """Be a member until `leave`. Never gives up: an unreachable cluster is tried again with back-off."""
        pause_s = _FIRST_PAUSE_S
        try:
            while not self._leaving.is_set():
                try:
                    await self._be_member()
                except CLIENT_ERRORS as error:
                    self.last_error = describe(error)
                    log.warning("no member of group %s: %s", self._group_id, self.last_error)
                if self.assignment:
                    pause_s = _FIRST_PAUSE_S
                await self._pause(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            self._ended.set()

    async def gives_us(self, partition: int) -> bool:
        """See `ports.Group.gives_us`. From any loop: the question has a client of its own."""
        member_id = self.member_id
        if not member_id:
            return False
        wanted = TopicPartition(self._topic, partition)
        members = await KafkaAdmin(self._settings).group_members(self._group_id)
        return any(
            member.member_id == member_id and wanted in member.partitions for member in members
        )

    async def leave(self, within_seconds: float = LEAVE_SECONDS) -> None:
        """Planned stop: the others get our partitions within a heartbeat, not a session timeout.

        Give up the partitions first: nothing is called back any more. Bounded, never raises.
        """
        self._leaving.set()
        await bounded(self._ended.wait(), within_seconds)

    async def abandon(self) -> None:
        """Another process uses our instance id: leave it the membership, so no LeaveGroup. Never raises."""
        self._without_leave = True
        await self.leave()

    @property
    def _coordinator(self) -> Any:
        """Read once by each caller: another thread may end the client meanwhile."""
        consumer = self._consumer
        return consumer._coordinator if consumer is not None else None

    async def _be_member(self) -> None:
        """One client's life: returns when we are leaving, raises when the client is of no use any more."""
        consumer = AIOKafkaConsumer(**membership_arguments(self._settings, self._group_id))
        try:
            await consumer.start()
            self._consumer = consumer
            consumer.subscribe([self._topic], listener=_Listener(self, consumer))
            polling = asyncio.create_task(self._poll(consumer))
            await self._until_leaving(polling)
            if not self._without_leave:
                await self._send_leave(consumer)
        finally:
            self._consumer, self.assignment = None, frozenset()
            await close_consumer(consumer)

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        """For ever: without polls the client would leave the group. Everything is paused: no records."""
        while True:
            await consumer.getmany(timeout_ms=_POLL_MS)

    async def _until_leaving(self, polling: asyncio.Task[None]) -> None:
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait({polling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                polling.result()
        finally:
            # A poll hangs in a rebalance; cutting it short harms only a client that lives on.
            for task in (polling, leaving):
                task.cancel()
            await asyncio.wait({polling, leaving})

    async def _send_leave(self, consumer: AIOKafkaConsumer) -> None:
        coordinator = consumer._coordinator
        member_id, node = coordinator.member_id, coordinator.coordinator_id
        # First its tasks end, or the next heartbeat would join again.
        await bounded(coordinator.close(), CLOSE_S)
        if node is None or not member_id:
            return
        request = StaticLeaveGroup(self._group_id, member_id, self._settings.instance_id)
        try:
            async with asyncio.timeout(CLOSE_S):
                answer = await consumer._client.send(
                    node, request, group=ConnectionGroup.COORDINATION
                )
        except CLIENT_ERRORS as error:
            log.warning("no LeaveGroup for %s: %s", self._group_id, describe(error))
            return
        codes = [answer.error_code, *(code for _, _, code in answer.members)]
        if any(codes):
            log.warning("LeaveGroup of %s was answered with codes %s", self._group_id, codes)

    async def _revoked(self, partitions: set[int]) -> None:
        if partitions and not self._leaving.is_set():
            limit_s = self._settings.timeouts.revoke_ms / 1000
            await self._call(self._on_revoked, partitions, limit_s)

    async def _assigned(self, partitions: set[int]) -> None:
        self._count_evictions()
        self.last_error = None
        self.assignment = frozenset(partitions)
        if not self._leaving.is_set():
            limit_s = self._settings.group.session_timeout_ms / 3000
            await self._call(self._on_assigned, partitions, limit_s)

    def _count_evictions(self) -> None:
        member_id = self.member_id
        if self._known_member_id not in ("", member_id):
            self._evictions.append(time.monotonic())
            if self.suspects_duplicate:
                log.error(
                    "another process of %s seems to have the same instance id %r: give each its own"
                    " (--set instance_id=NAME or SNAPREPLAY_INSTANCE_ID)",
                    self._group_id,
                    self._settings.instance_id,
                )
        self._known_member_id = member_id

    async def _call(self, callback: Callback, partitions: set[int], limit_s: float) -> None:
        """Wait for it, but not for ever, and never cancel it: it may be in the middle of a snapshot."""
        task = asyncio.create_task(_as_coroutine(callback, partitions))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)
        done, _ = await asyncio.wait({task}, timeout=limit_s)
        if not done:
            log.warning(
                "%s(%s) is still busy after %.1f s: going on without it",
                getattr(callback, "__name__", callback),
                sorted(partitions),
                limit_s,
            )
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("a membership callback failed", exc_info=error)

    async def _pause(self, seconds: float) -> None:
        waiting = asyncio.create_task(self._leaving.wait())
        await asyncio.wait({waiting}, timeout=seconds)
        waiting.cancel()


class _Listener(ConsumerRebalanceListener):
    """aiokafka's callbacks, for one client of a Membership."""

    def __init__(self, membership: Membership, consumer: AIOKafkaConsumer) -> None:
        self._membership = membership
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: set[ClientPartition]) -> None:
        await self._membership._revoked({source.partition for source in revoked})

    async def on_partitions_assigned(self, assigned: set[ClientPartition]) -> None:
        # The first line of all: 50 ms later everything would have been fetched.
        self._consumer.pause(*assigned)
        await self._membership._assigned({source.partition for source in assigned})


async def _as_coroutine(callback: Callback, partitions: set[int]) -> None:
    await callback(partitions)
