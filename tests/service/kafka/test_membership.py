"""Membership on a real coordinator: who owns what, how fast it moves, and who must not be there."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed
from msgspec.structs import replace

from snapreplay.service.config.groups import GroupSettings, TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import owners
from snapreplay.service.core.peers import Peer
from snapreplay.service.kafka import membership
from snapreplay.service.kafka.membership import Membership, _end
from snapreplay.service.kafka.refusals import BrokerAddress, NotConnected
from tests.support import inside
from tests.support.deadlines import scaled, within
from tests.support.kafka import Since
from tests.support.stage import session_ms, until

pytestmark = pytest.mark.kafka
LONG_SESSION_MS = 60_000
"""Of a member whose session no test waits for, however busy the machine is."""


class Member:
    """A process of an app: its membership running, what it was told, in order."""

    def __init__(self, bootstrap_servers, app, topic, instance="one", on_revoked=None, me=None, kafka=(), **more):
        group = {"heartbeat_interval_ms": 300, "session_timeout_ms": LONG_SESSION_MS} | more
        settings = Settings(
            kafka={"bootstrap.servers": bootstrap_servers, **dict(kafka)},
            instance_id=instance,
            group=GroupSettings(**group),
            timeouts=TimeoutSettings(revoke_ms=1500),
        )
        self.told = []
        self.membership = Membership(settings, app, topic, self._assigned, on_revoked or self._revoked, me=me)
        self.task = asyncio.create_task(self.membership.run())

    async def _assigned(self, partitions):
        self.told.append(("assigned", partitions))

    async def _revoked(self, partitions):
        self.told.append(("revoked", partitions))

    @property
    def peers(self):
        """Process id → the partitions that it owns, as this member was told."""
        return {peer.process_id: set(peer.owned) for peer in self.membership.share.peers}

    @property
    def owns(self):
        return set(self.membership.assignment)

    async def crash(self):
        """End without a word to the coordinator, as SIGKILL does."""
        self.task.cancel()
        await asyncio.wait([self.task])


class Group:
    """A group that adds a member when it is called."""

    def __init__(self, bootstrap_servers, app, topic):
        self.bootstrap_servers, self.app, self.topic = bootstrap_servers, app, topic
        self.members = []

    def __call__(self, instance="one", **more):
        self.members.append(Member(self.bootstrap_servers, self.app, self.topic, instance, **more))
        return self.members[-1]


@pytest.fixture
async def group(broker, new_topic, unique):
    """Members of a new group over a topic with 4 partitions; the rest of them is ended afterwards."""
    joined = Group(broker.bootstrap_servers, unique("app"), await new_topic(4))
    yield joined
    for member in joined.members:
        await member.membership.leave()
        await member.crash()


@pytest.mark.parametrize("names", [("one", "two"), ("", "")], ids=["static", "dynamic"])
async def test_two_members_share_and_a_graceful_stop_gives_back_within_a_heartbeat(group, names):
    """A static member's LeaveGroup is ours: the other one does not wait for the session timeout."""
    one, two = (group(name, session_timeout_ms=LONG_SESSION_MS) for name in names)
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    assert one.owns | two.owns == {0, 1, 2, 3}
    started = time.monotonic()
    await two.membership.leave()
    await until(lambda: one.owns == {0, 1, 2, 3})
    assert time.monotonic() - started < LONG_SESSION_MS / 2000
    assert two.owns == set()
    assert not two.membership.member_id
    assert two.told[-1][0] == "assigned", "leaving calls nothing back"


async def test_the_coordinator_says_what_is_ours(cluster, group):
    """Alone a member owns everything, and hears it once. By member id: each member's own partitions and no others, and
    nothing once it is no member."""
    one = group("one")
    await until(lambda: one.owns == {0, 1, 2, 3} and one.told)
    assert one.told == [("assigned", {0, 1, 2, 3})]
    (known,) = await cluster.group_members(group.app)
    assert (known.member_id, known.instance_id) == (one.membership.member_id, "one")
    assert {source.partition for source in known.partitions} == {0, 1, 2, 3}
    assert await cluster.group_members(group.app + "-unknown") == []
    two = group("two")
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    for member in (one, two):
        given = {number for number in range(4) if await member.membership.is_assigned_to_us(number)}
        assert given == member.owns
    await two.membership.leave()
    assert not await two.membership.is_assigned_to_us(0)
    await until(lambda: one.owns == {0, 1, 2, 3})
    assert all([await one.membership.is_assigned_to_us(number) for number in range(4)])


async def test_a_killed_member_that_returns_has_its_partitions_at_once(group):
    """Same instance id: no rebalance of the other one, no session timeout to wait for."""
    one, two = (group(name, session_timeout_ms=LONG_SESSION_MS) for name in ("one", "two"))
    await until(lambda: len(one.owns) == len(two.owns) == 2 and one.told[-1:] == [("assigned", one.owns)])
    before, told = two.owns, list(one.told)
    await two.crash()
    started = time.monotonic()
    again = group("two", session_timeout_ms=LONG_SESSION_MS)
    await until(lambda: again.owns == before)
    assert time.monotonic() - started < LONG_SESSION_MS / 2000
    assert one.told == told
    assert not inside.suspects_duplicate(again.membership)


async def test_members_hear_who_the_others_are_and_what_they_own(group):
    """A static member that was killed and started again gets its old assignment, and is made known all the same."""
    one, two = (group(name, me=Peer(f"{name}-1", name, "host", "")) for name in ("one", "two"))
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    await until(lambda: one.peers == two.peers == {"one-1": one.owns, "two-1": two.owns})
    await two.crash()
    again = group("two", me=Peer("two-2", "two", "host", ""))
    await until(lambda: one.peers == again.peers == {"one-1": one.owns, "two-2": again.owns})
    await until(lambda: again.told[-1][0] == "assigned")  # and not in the midst of the rebalance
    told = len(again.told)
    await asyncio.sleep(0.6)  # two heartbeats: what must not happen has no condition
    assert len(again.told) == told, "it is made known once"


async def test_a_stop_during_a_join_leaves_the_group(broker, cluster, group, monkeypatch):
    """LeaveGroup waits neither behind the unanswered join on its connection nor for its answer. No task remains."""
    monkeypatch.setattr(membership, "CLOSE_S", LONG_SESSION_MS / 1000)
    since = Since(broker.bootstrap_servers)
    one, two = group("one"), group("two")
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    await two.crash()
    one.membership.rejoin()  # answered when the session of the other one is over
    asks = one.membership._told_asks
    await until(lambda: one.membership._told_asks > asks)
    left = one.membership.member_id
    async with within(5):
        await one.membership.leave(LONG_SESSION_MS / 1000)
    assert left not in {each.member_id for each in await cluster.group_members(group.app)}
    await until(lambda: not since.tasks, "its tasks have ended", 5)


async def test_who_ends_a_coordinator_can_be_cancelled():
    """A coordinator also raises the cancellations of its own tasks, which end nothing else."""

    class Coordinator:
        heartbeats = True

        async def close(self):
            await asyncio.Event().wait()

        def reset_generation(self):
            self.heartbeats = False

    coordinator = Coordinator()
    ending = asyncio.create_task(_end(coordinator))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    assert not coordinator.heartbeats


async def test_what_is_asked_for_during_a_join_is_asked_for_again(monkeypatch):
    """The client forgets a request that comes while it waits for the others to join."""
    requests = []

    async def told(_):
        pass

    membership = Membership(Settings(), "app", "increments", told, told)
    client = SimpleNamespace(request_rejoin=lambda: requests.append(membership._asks), member_id="", generation=1)
    monkeypatch.setattr(membership, "_coordinator", client)
    membership._ask()
    membership._as_member()  # the join begins
    membership._ask()
    assert requests == [1, 2]
    for _ in range(2):
        await membership._assigned({0})
        membership._as_member()
    assert requests == [1, 2, 2], "once more, by the first assignment"


async def test_a_refused_login_is_named_by_a_member_without_a_broker():
    """The client's error has the reasons of each address; its cause has none."""

    async def told(_):
        pass

    error = NotConnected("no broker answers", {BrokerAddress("k", 9092): SaslAuthenticationFailed("no")})
    error.__cause__ = KafkaConnectionError("closed")
    member = Membership(Settings(), "app", "increments", told, told)
    await member._lost(error)
    assert "the broker at k:9092 denies access" in str(member.last_error)


@pytest.mark.whole
async def test_the_client_forgets_a_request_during_a_join(group):
    """So it is repeated, else what is owned by then would stay untold."""
    one, two = (group(name, session_timeout_ms=session_ms()) for name in ("one", "two"))
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    await two.crash()
    one.membership.rejoin()  # waits until the session of the other one is over
    asks = one.membership._told_asks
    await until(lambda: one.membership._told_asks > asks)
    one.membership.rejoin()
    await until(lambda: one.membership._told_asks > asks + 1 and len(one.owns) == 4)


async def test_a_member_joins_again_after_a_year(group, monkeypatch):
    """aiokafka would have a member leave that fetches nothing for max.poll.interval.ms; ours never fetches."""
    one = group("one")
    await until(lambda: one.told)
    monkeypatch.setattr(SubscriptionState, "fetcher_idle_time", 365 * 24 * 3600.0)
    one.membership.rejoin()
    await until(lambda: len(one.told) == 3, seconds=10)
    assert one.told == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3}), ("assigned", {0, 1, 2, 3})]


async def test_who_was_taken_for_absent_makes_itself_known(group):
    """Its request to join came late: the others had been through a generation without it."""
    one, two = (group(name, me=Peer(name, name, "host", "")) for name in ("one", "two"))
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    assignor, said = one.membership._assignor, one.membership._assignor._me

    def late():
        assignor._me = said
        return replace(said(), generation=0)

    assignor._me = late
    two.membership.rejoin()
    await until(lambda: one.membership._told_asks > 0 and two.membership.share.absent == ())
    await until(lambda: len(one.owns) == len(two.owns) == 2)  # the generation without it may still be under way


async def test_two_processes_with_one_instance_id_are_noticed(group, caplog):
    """They throw each other out for ever and no call fails; each of them says so once."""
    one, two = group("same"), group("same")
    await until(lambda: inside.suspects_duplicate(one.membership) and inside.suspects_duplicate(two.membership))
    assert caplog.text.count("seems to use the same instance id 'same'") == 2


@pytest.fixture
def looks_often(monkeypatch):
    """Ten times a second."""
    monkeypatch.setattr(owners, "LOOK_SECONDS_MAX", 0.1)


async def test_who_stood_aside_is_back_when_the_other_one_is_gone(looks_often, group):
    """No LeaveGroup of its own takes the membership from the other one. When that one has left, it is back."""
    one = group("same", session_timeout_ms=session_ms())
    await until(lambda: one.owns == {0, 1, 2, 3})
    assert one.membership.aside is None
    two = group("same")
    await until(lambda: two.owns == {0, 1, 2, 3})
    assert one.membership.stand_aside("process 7 on host h")
    assert not one.membership.stand_aside("process 7 on host h"), "it does so already"
    await until(lambda: not one.membership.member_id)
    told = list(one.told)
    # A request to join again, sent before it stood aside, may throw the other one out once more.
    text = "stepped down for process 7 on host h; checks again in"
    await until(lambda: str(one.membership.aside).startswith(text))
    await until(lambda: one.membership.stepped_down.looks >= 2 and two.owns == {0, 1, 2, 3})
    taken, looks = two.membership.member_id, one.membership.stepped_down.looks
    await until(lambda: one.membership.stepped_down.looks >= looks + 3)
    assert (one.told, two.membership.member_id) == (told, taken)
    await two.membership.leave()
    await until(lambda: one.owns == {0, 1, 2, 3})
    assert one.membership.aside is None


async def test_a_revocation_that_hangs_delays_no_other_member(group, caplog):
    """After timeouts.revoke_ms the group continues; the callback is not cancelled: it may be writing."""
    released, finished = asyncio.Event(), asyncio.Event()

    async def slow(_):
        await released.wait()
        finished.set()

    one = group("one", on_revoked=slow)
    await until(lambda: one.owns == {0, 1, 2, 3})
    two = group("two")
    started = time.monotonic()
    await until(lambda: len(two.owns) == 2)
    assert time.monotonic() - started > 1.4
    assert "still busy" in caplog.text
    released.set()
    await asyncio.wait_for(finished.wait(), scaled(5))


async def test_a_callback_that_fails_is_reported_and_changes_nothing(group, caplog):
    """Membership continues, or one bug would cost all partitions."""

    async def broken(_):
        raise ValueError("a bug")

    one = group("one", on_revoked=broken)
    await until(lambda: one.owns == {0, 1, 2, 3})
    two = group("two")
    await until(lambda: len(one.owns) == len(two.owns) == 2)
    assert "a membership callback failed" in caplog.text


async def test_leaving_before_anything_happened_ends_at_once(broker, unique):
    """A stop during the first connection attempts is a stop."""
    member = Member("127.0.0.1:9", unique("app"), "t")
    await until(lambda: member.membership.last_error)
    assert not member.membership.member_id
    started = time.monotonic()
    await member.membership.leave(60.0)
    async with within(30):
        await asyncio.wait([member.task])
    assert time.monotonic() - started < 30
