"""The group member that learns which partitions are ours, and reads nothing.

It subscribes to the increments topic only, so that several inputs cannot be split over members. aiokafka's coordinator
speaks for it. Restores and handlers run elsewhere, so heartbeats never wait for them. Membership is a hint about who
works on what; safety comes from the fence. It is static (KIP-345) where `instance_id` is set.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import ConsumerRebalanceListener
from aiokafka import errors as kafka
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.counted import some
from snapreplay.errors import AccessError, SnapreplayError, described
from snapreplay.service.config.groups import GroupSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import inspected
from snapreplay.service.core.assignment import Holding, Introductions, Member, Share
from snapreplay.service.core.kafka_errors import GroupRefused
from snapreplay.service.core.owners import SteppedDown
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.admin import NEWER_PROTOCOL, GroupMember, KafkaAdmin
from snapreplay.service.kafka.assignor import StandbyAssignor
from snapreplay.service.kafka.config import retry_pause_s
from snapreplay.service.kafka.connection import CLOSE_S, AnyRequest
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, GroupFull, known_error
from snapreplay.service.kafka.refusals import NotConnected
from snapreplay.service.kafka.requests import LeaveGroup
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import TopicPartition
from snapreplay.service.runtime.tasks import cancel_and_wait

log = logging.getLogger(__name__)

Callback = Callable[[set[int]], Coroutine[Any, Any, None]]
T = TypeVar("T")

LEAVE_SECONDS = 5 * CLOSE_S  # the default; a stop with less time says so
LOOK_SECONDS = 2.0
_UNKNOWN_MEMBER_ID = 25  # aiokafka's own LeaveGroup of a dynamic member came first
_LOOK_S = 0.2
"""Interval of looking for an error of the coordinator."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 10.0

EVICTIONS_SUSPECT = 3


class Evictions:
    """The times at which the coordinator threw us out: two processes with one instance id do so to each other with
    every heartbeat, and no call fails. Each gets a new member id each time, which a rebalance never gives."""

    def __init__(self, settings: Settings) -> None:
        self._is_static = bool(settings.instance_id)
        self._window_seconds = max(10.0, 10 * settings.group.heartbeat_interval_ms / 1000)
        self._times: deque[float] = deque(maxlen=EVICTIONS_SUSPECT)
        self._member_id = ""

    @property
    def suspects_duplicate(self) -> bool:
        """Whether another process seems to run with the same instance id."""
        full = len(self._times) == EVICTIONS_SUSPECT
        return full and time.monotonic() - self._times[0] < self._window_seconds

    def seen(self, member_id: str) -> bool:
        """Note the member id of an assignment; say whether it makes another process suspected that was not."""
        known = self.suspects_duplicate
        if self._is_static and self._member_id not in ("", member_id):
            self._times.append(time.monotonic())
        self._member_id = member_id
        return self.suspects_duplicate and not known

    def forget(self) -> None:
        """Begin again."""
        self._member_id = ""
        self._times.clear()


class Membership:
    """One member of the app's group. Call `run` once, `leave` in the same loop, and `stand_aside` from any thread.

    `on_revoked(partitions)` is awaited for at most timeouts.revoke_ms, then continues alone. `on_assigned(partitions)`
    gets the whole new assignment, perhaps empty or the same, and only starts things: no heartbeat is sent meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        app_id: str,
        increments_topic: str,
        on_assigned: Callback,
        on_revoked: Callback,
        holding: Callable[[], Holding] = Holding,
        me: Peer | None = None,
    ) -> None:
        """Take `holding`, which says what this process owns and has warm copies of; from the membership's thread.
        `me` is what the others are told of it."""
        self._settings = settings
        self._group_id = app_id
        self._topic = increments_topic
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._holding = holding
        self._me = me
        self._assignor = StandbyAssignor(increments_topic, self._as_member)
        self._asks = self._told_asks = 0
        self._introductions = Introductions()
        self._told_leaving = False
        self._given = asyncio.Event()  # an assignment to a member that is leaving
        self._coordinator: Any = None
        self._leaving = asyncio.Event()
        self._ended = asyncio.Event()
        self._callbacks: set[asyncio.Task[None]] = set()
        self._evictions = Evictions(settings)
        self._said = Repeats()
        self.stepped_down: SteppedDown | None = None
        self._aside_for = ""
        self._interrupted = asyncio.Event()  # the present client's life is to end
        self._looks_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.gives_away = False
        """Whether the group is to give our partitions to others, as of the next `rejoin`. Set from any thread."""
        self.assignment: frozenset[int] = frozenset()
        """Ours, as of the last assignment. Empty before the first and after leaving."""
        self.last_error: str | None = None
        """Why there is no connection at present; None when all is well."""
        self.left_because: str | None = None
        """The reason why we left the group until `come_back`; None: we did not."""
        self.kept_out: str | None = None
        """Why there is no new connection after one was lost; None when there is."""
        self.mixed_with: str = ""
        """The members because of which the coordinator assigns the partitions itself, with the remedy, or empty."""

    @property
    def member_id(self) -> str:
        """The coordinator's name for us; empty while we are no member."""
        coordinator = self._coordinator
        return str(coordinator.member_id) if coordinator is not None else ""

    @property
    def generation(self) -> int:
        """The generation of the group; -1 while we are no member."""
        coordinator = self._coordinator
        return int(coordinator.generation) if coordinator is not None else -1

    @property
    def trouble(self) -> str | None:
        """The reason why the group does not hear from us at present; None when it does. An idle service learns of an
        absent broker nowhere else. Any thread."""
        if self.left_because is not None:
            return f"left the group: {self.left_because}"
        coordinator = self._coordinator
        if coordinator is not None and coordinator.coordinator_id is None:
            return self.kept_out or self.last_error or "no broker answers for the app's group"
        return self.last_error

    @property
    def aside(self) -> str | None:
        """The process for which we stepped down, and when we look again; None: we have not. Any thread."""
        aside = self.stepped_down
        if aside is None:
            return None
        seconds = max(0.0, self._looks_at - time.monotonic())
        found = "the other process has left; checks again" if aside.gone else "checks again"
        return f"stepped down for {self._aside_for}; {found} in {seconds:.0f} s"

    def stand_aside(self, for_whom: str) -> bool:
        """Leave the membership to another process of the same instance id until that has left. Any thread; False: we do
        so already."""
        if self.stepped_down is not None or self._loop is None:
            return False
        self._aside_for, self._looks_at = for_whom, time.monotonic()
        self.stepped_down = SteppedDown(return_seconds=self._settings.group.session_timeout_ms / 1000)
        self._loop.call_soon_threadsafe(self._interrupted.set)
        return True

    def stay_away(self, why: str) -> None:
        """Leave the group to those whose partitions these are, until `come_back`. Any thread."""
        if self._loop is not None:
            self.left_because = why
            self._loop.call_soon_threadsafe(self._interrupted.set)

    def come_back(self) -> None:
        """Join the group again after `stay_away`. Any thread."""
        self.left_because = None

    @property
    def share(self) -> Share:
        """The share that the group gave to us last; empty before the first assignment."""
        return self._assignor.share

    def rejoin(self) -> None:
        """Have the partitions assigned again, by what this process holds now. Nothing stops meanwhile. Any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ask)

    async def hand_over(self, within_seconds: float) -> None:
        """Ask the others to take our partitions, and wait for the new assignment at most this long."""
        self.gives_away = True
        if self.trouble is not None or not self.assignment:
            return
        self._given.clear()
        self.rejoin()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._given.wait()

    async def run(self) -> None:
        """Be a member until `leave`. Never gives up: an unreachable cluster is retried with back-off."""
        pause_s = _FIRST_PAUSE_S
        self._loop = asyncio.get_running_loop()
        try:
            while not self._leaving.is_set():
                if self.stepped_down is not None:
                    await self._until_gone()
                    continue
                if self.left_because is not None:
                    await self._pause(_FIRST_PAUSE_S)
                    continue
                self._interrupted.clear()
                try:
                    await self._be_member()
                except CLIENT_ERRORS as error:
                    await self._lost(error)
                if self.assignment:
                    pause_s = _FIRST_PAUSE_S
                await self._pause(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            self._ended.set()

    async def is_assigned_to_us(self, partition: int) -> bool:
        """Ask as `ports.ConsumerGroup` says. From any loop: the question has a client of its own."""
        member_id = self.member_id
        if not member_id:
            return False
        wanted = TopicPartition(self._topic, partition)
        members = await KafkaAdmin(self._settings).group_members(self._group_id)
        return any(member.member_id == member_id and wanted in member.partitions for member in members)

    async def leave(self, within_seconds: float = LEAVE_SECONDS) -> None:
        """Leave: the others get our partitions within a heartbeat. Release them before: nothing is called back any
        more. Bounded, never raises."""
        self._leaving.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._ended.wait()

    def _ask(self) -> None:
        self._asks += 1
        self._request()

    def _request(self) -> None:
        """Have the client join again. While a join is under way it forgets that: `_assigned` does it once more."""
        if (coordinator := self._coordinator) is not None:
            coordinator.request_rejoin()

    def _as_member(self) -> Member:
        held, rack = self._holding(), str(self._settings.kafka.get("client.rack", ""))
        self._told_leaving, self._told_asks = self.gives_away, self._asks
        return Member(
            held.owned,
            held.warm - held.owned,
            held.replicas,
            rack,
            is_leaving=self.gives_away,
            epochs=dict(held.epochs),
            peer=self._me,
            asks=self._asks,
            generation=self.generation,
            lags=dict(held.lags),
        )

    async def _be_member(self) -> None:
        """Live one client's life: returns when we leave or stand aside, raises when the client is no longer usable."""
        client = _GroupClient(Shared(self._settings), self._settings.group.rebalance_timeout_ms / 1000)
        subscription = SubscriptionState()
        coordinator: Any = None
        try:
            await client.start()
            coordinator = self._coordinator = self._joining(client, subscription)
            failing = asyncio.create_task(_raise_errors(coordinator))
            await self._until_leaving(failing, asyncio.create_task(self._look_why()))
            if self.stepped_down is None:  # else the membership is another process's now
                await _leave_group(client, coordinator, self._group_id, self._settings.instance_id or None)
        finally:
            self._coordinator, self.assignment = None, frozenset()
            try:
                if coordinator is not None:
                    await _end(coordinator)
            finally:
                subscription.unsubscribe()  # ends the task that a close during a join leaves
                await client.close()

    def _joining(self, client: _GroupClient, subscription: SubscriptionState) -> Any:
        """Return aiokafka's coordinator, which joins the group by itself."""
        subscription.subscribe({self._topic}, _Listener(self._revoked, self._assigned))
        subscription.register_fetch_waiters(())  # nothing is fetched
        client.set_topics([self._topic])
        group = self._settings.group
        return GroupCoordinator(
            client,
            subscription,
            group_id=self._group_id,
            group_instance_id=self._settings.instance_id or None,
            session_timeout_ms=group.session_timeout_ms,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
            rebalance_timeout_ms=group.rebalance_timeout_ms,
            retry_backoff_ms=round(1000 * retry_pause_s(self._settings)),
            enable_auto_commit=False,
            assignors=(self._assignor,),
            max_poll_interval_ms=math.inf,  # it counts from here: this member fetches nothing
        )

    async def _lost(self, error: BaseException) -> None:
        """Say why there is no membership: the client wraps what the broker answered."""
        cause = error
        if isinstance(error.__cause__, KafkaError) and not isinstance(error, NotConnected):
            cause = error.__cause__
        known: SnapreplayError = await refused_join(self._settings, self._group_id, cause) or await known_error(
            cause, "joining it", Asked(self._settings, "Read", self._group_id)
        )
        is_named = isinstance(known, AccessError | GroupRefused)
        self.last_error = str(known) if is_named else described(error)
        line = self._said.line(f"not a member of group {self._group_id}: {self.last_error}", time.monotonic())
        if line is not None:
            log.warning("%s", line)

    async def _look_why(self) -> None:
        """Look for what keeps out a client that has lost its brokers: it retries for ever and does not say so."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            coordinator = self._coordinator
            error: SnapreplayError | None = None
            if coordinator is not None and coordinator.coordinator_id is None:
                error = await self._without_coordinator()
            if error is not None and error.hint:
                line = self._said.line(f"group {self._group_id}: {error}", time.monotonic())
                if line is not None:
                    log.warning("%s", line)
            self.kept_out = str(error) if error is not None else None
            before, self.mixed_with = self.mixed_with, await self._mixed()
            if self.mixed_with and not before:
                log.warning("%s", self.mixed_with)

    async def _mixed(self) -> str:
        """Name the members for which the coordinator bypasses our assignor; empty: there are none."""
        if not self._assignor.is_bypassed:
            return ""
        found = await _answer(KafkaAdmin(self._settings).foreign_members(self._group_id))
        if found is None:
            return self.mixed_with
        return str(mixed_group(self._settings, self._group_id, found)) if found else ""

    async def _without_coordinator(self) -> SnapreplayError | None:
        """Say what keeps the group without a coordinator; None: it has one again."""
        try:
            await KafkaAdmin(self._settings).group_members(self._group_id)
        except SnapreplayError as error:
            return error
        return None

    async def _until_leaving(self, failing: asyncio.Task[None], looking: asyncio.Task[None]) -> None:
        ends = {asyncio.create_task(each.wait()) for each in (self._leaving, self._interrupted)}
        try:
            await asyncio.wait({failing, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                failing.result()
        finally:
            for task in (failing, looking, *ends):
                task.cancel()
            await asyncio.wait({failing, looking, *ends})

    async def _until_gone(self) -> None:
        """Stand aside until no member has the same instance id, or we are leaving."""
        while (aside := self.stepped_down) is not None:
            self._looks_at = time.monotonic() + aside.pause_seconds
            await self._pause(aside.pause_seconds)
            if self._leaving.is_set():
                return
            aside = aside.looked(there=await self._instance_id_taken())
            self.stepped_down = None if aside.over else aside
        self._evictions.forget()
        log.info("back in group %s, because the other process has left: %s", self._group_id, self._aside_for)

    async def _instance_id_taken(self) -> bool | None:
        """Say whether a member has the same instance id; None: no answer."""
        try:
            members = await KafkaAdmin(self._settings).group_members(self._group_id)
        except SnapreplayError as error:
            log.warning("cannot find out which member of group %s has the same instance id: %s", self._group_id, error)
            return None
        return any(member.instance_id == self._settings.instance_id for member in members)

    async def _revoked(self, partitions: set[int]) -> None:
        if partitions and not self._leaving.is_set():
            limit_s = self._settings.timeouts.revoke_ms / 1000
            await self._call(self._on_revoked, partitions, limit_s)

    async def _assigned(self, partitions: set[int]) -> None:
        if self.stepped_down is not None:
            return
        if self._evictions.seen(self.member_id):
            log.warning(
                "another process of %s seems to use the same instance id %r: checking in the log which of the"
                " two started first, because that one steps down",
                self._group_id,
                self._settings.instance_id,
            )
        self.last_error = None
        self.assignment = frozenset(partitions)
        if self._told_leaving:
            self._given.set()
        if self._me is not None and self._introductions.is_due(self._me.process_id, self._assignor.share):
            self._asks += 1
        if self._told_asks < self._asks:
            self._request()
        if not self._leaving.is_set():
            limit_s = self._settings.group.session_timeout_ms / 3000
            await self._call(self._on_assigned, partitions, limit_s)

    async def _call(self, callback: Callback, partitions: set[int], limit_s: float) -> None:
        """Wait for it, but not for ever, and never cancel it: it may be in the middle of a snapshot."""
        task = asyncio.create_task(callback(partitions))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)
        done, _ = await asyncio.wait({task}, timeout=limit_s)
        if not done:
            log.warning(
                "%s(%s) is still busy after %.1f s; the group continues without it",
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


GROUP_SIZE = "group.max.size"
DEFAULT_SESSION_MS = GroupSettings().session_timeout_ms


async def refused_join(settings: Settings, group_id: str, error: BaseException) -> GroupRefused | None:
    """Return the refusal behind an error of a join; None: the error may pass by itself."""
    admin = KafkaAdmin(settings)
    is_full = GroupFull.__name__ in str(error)  # the client wraps it
    match error:
        case kafka.InvalidSessionTimeoutError():
            facts = await _answer(admin.facts())
            return _beyond_limits(settings, group_id, facts.broker_config if facts is not None else {})
        case kafka.KafkaError() if is_full or isinstance(error, kafka.InconsistentGroupProtocolError):
            found = await _answer(admin.foreign_members(group_id, is_foreign=not is_full)) or []
            if found or not is_full:
                return mixed_group(settings, group_id, found)
            facts = await _answer(admin.facts())
            limit = facts.broker_config.get(GROUP_SIZE) if facts is not None else None
            return GroupRefused(
                f"group {group_id} has as many members as {GROUP_SIZE}{f'={limit}' if limit else ''} of the brokers"
                " allows: this process cannot join it",
                hint=f"raise {GROUP_SIZE} on every broker; or run fewer processes of the app",
            )
        case _:
            return None


def mixed_group(settings: Settings, group_id: str, found: list[GroupMember]) -> GroupRefused:
    """Return the refusal of a group that consumers have joined that are no processes of the app."""
    servers = ",".join(settings.bootstrap_servers)
    who = some(str(each) for each in found) or "of another kind, which the coordinator does not list"
    is_newer = any(each.protocol == NEWER_PROTOCOL for each in found)
    instead = (
        "assigns the partitions itself: processes of the app get no warm copies and do not know each other"
        if is_newer
        else "lets no process of the app join"
    )
    return GroupRefused(
        f"group {group_id} has a member that is not a process of the app ({who}): until it leaves, the coordinator"
        f" {instead}",
        hint="stop that consumer, or give it another group.id: the group whose name is the app id is the app's own."
        f" `kafka-consumer-groups.sh --bootstrap-server {servers} --describe --group {group_id} --members` lists who is"
        " in it",
        members=[str(each) for each in found],
    )


async def _answer(asking: Awaitable[T]) -> T | None:
    try:
        return await asking
    except SnapreplayError:
        return None


def _beyond_limits(settings: Settings, group_id: str, broker_config: Mapping[str, str]) -> GroupRefused:
    wanted_ms = settings.group.session_timeout_ms
    found = inspected.session_timeout(wanted_ms, broker_config)
    if found is not None:
        return GroupRefused(found.problem, hint=found.remedy)
    return GroupRefused(
        f"the coordinator of group {group_id} refuses group.session_timeout_ms={wanted_ms}: it is below its"
        f" {inspected.SESSION_MIN} or above its {inspected.SESSION_MAX}",
        hint=f"`--set group.session_timeout_ms={DEFAULT_SESSION_MS}` lies between Kafka's defaults of the two, 6000 and"
        " 1800000 (it outranks a settings file and the environment); or change them on every broker",
    )


class _GroupClient(Client):
    """The client that aiokafka's coordinator calls. It has the method names of aiokafka's client."""

    def __init__(self, shared: Shared, join_s: float) -> None:
        """Take `join_s`: how long a join or sync may wait for the other members. Other requests have the usual
        deadline, or a frozen coordinator would be noticed after half a minute."""
        super().__init__(shared)
        self._join_s = join_s

    async def send(
        self, node: int, request: AnyRequest, *, group: int = ConnectionGroup.DEFAULT, kept_s: float = 0.0
    ) -> Any:
        kept_s = self._join_s if isinstance(request, JoinGroupRequest | SyncGroupRequest) else kept_s
        return await super().send(node, request, group=group, kept_s=kept_s)

    async def coordinator_lookup(self, kind: int, name: str) -> int:
        return await self.coordinator(name, kind)

    def force_metadata_update(self) -> asyncio.Future[bool]:
        return self.shared.refresh()

    def set_topics(self, topics: Collection[str]) -> asyncio.Future[bool]:
        return self.shared.track(topics)

    async def _maybe_wait_metadata(self) -> None:
        """Wait for the metadata of all topics that were asked for."""
        await self.shared.pending()


class _Listener(ConsumerRebalanceListener):
    """The callbacks of aiokafka, for one client of a Membership."""

    def __init__(self, on_revoked: Callback, on_assigned: Callback) -> None:
        self._on_revoked, self._on_assigned = on_revoked, on_assigned

    async def on_partitions_revoked(self, revoked: set[ClientPartition]) -> None:
        await self._on_revoked({source.partition for source in revoked})

    async def on_partitions_assigned(self, assigned: set[ClientPartition]) -> None:
        await self._on_assigned({source.partition for source in assigned})


async def _raise_errors(coordinator: Any) -> None:
    """Raise the error that ends the coordinator."""
    while True:
        coordinator.check_errors()
        await asyncio.sleep(_LOOK_S)


async def _end(coordinator: Any) -> None:
    """End its tasks; a dynamic member leaves. Bounded, never raises."""
    closing = asyncio.create_task(coordinator.close())  # it also raises the cancellations of its own tasks
    try:
        await asyncio.wait({closing}, timeout=CLOSE_S)
    finally:
        coordinator.reset_generation()  # ends its heartbeats, also after a timeout
        await cancel_and_wait(closing)


async def _leave_group(client: Client, coordinator: Any, group_id: str, instance_id: str | None) -> None:
    """Leave the group as this member. Bounded, never raises.

    aiokafka's coordinator leaves for dynamic members only, and not before the answer to a join that is under way. The
    broker answers that when the member leaves. So both are done at once; a member that is closing does not join again.
    """
    member_id, node = coordinator.member_id, coordinator.coordinator_id
    async with asyncio.TaskGroup() as both:
        both.create_task(_end(coordinator))
        if node is not None and member_id:
            both.create_task(_send_leave(client, node, group_id, member_id, instance_id))


async def _send_leave(client: Client, node: int, group_id: str, member_id: str, instance_id: str | None) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            # On a connection of its own: an unanswered join holds up the coordinator's.
            answer = await client.send(node, LeaveGroup(group_id, member_id, instance_id))
    except CLIENT_ERRORS as error:
        log.warning("cannot send LeaveGroup for %s: %s", group_id, described(error))
        return
    codes = [answer.error_code, *(code for _, _, code, _ in answer.members)]
    expected = {0} if instance_id else {0, _UNKNOWN_MEMBER_ID}
    if not expected.issuperset(codes):
        log.warning("LeaveGroup of %s was answered with codes %s", group_id, codes)
