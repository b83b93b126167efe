"""A process that seems to be dead is taken over from at once, on a real broker: it is dead, or it is not."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.protocol import Check
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps, inside
from tests.support.child import Load
from tests.support.deadlines import scaled, within
from tests.support.stage import until

pytestmark = pytest.mark.kafka


def long_session_ms():
    """Return a session timeout that is longer than a takeover takes, however busy the machine is. Who is LIVE before it
    is over has not waited for it."""
    return int(scaled(5) * 1000)


async def in_thread(call, *arguments):
    return await asyncio.to_thread(call, *arguments)


class Pair:
    """A process that owns all partitions, and this one, which has warm copies of them."""

    def __init__(self, here, owner, service):
        self.here, self.owner, self.service = here, owner, service

    def suspect(self, why="connection refused"):
        (owner,) = (peer for peer in self.service.control.document().peers if peer.owned)
        self.service.control.suspect(owner.process_id, why)

    def phases(self):
        return {each.partition: each.phase.value for each in self.service.restore_status()}

    def epochs(self):
        return {each.partition: each.owner_epoch for each in self.service.restore_status()}

    @property
    def taken_over(self):
        return inside.supervisor(self.service).taken_over

    @property
    def false_alarms(self):
        return EVENTS.get_sample_value("snapreplay_false_alarms_total", {"app": self.here.app.app_id})

    @property
    def assigned(self):
        return inside.membership(self.service).assignment

    async def live(self, count):
        await until(lambda: self.phases() == dict.fromkeys(range(count), "live"), "all live here")

    def unready(self):
        """Return what keeps this process from being ready, but for its own standstills on a busy machine."""
        return [each for each in self.service.control.ready_checks() if not each.ok and each.name != "runner loop"]

    def copies(self):
        """The partitions that the owner has warm copies of."""
        copies = self.owner.get("/restore-status?scope=local")["standbys"]
        return [each["partition"] for each in copies if each["state"] == "warm"]

    async def claims(self):
        records = await self.here.read(self.here.increments)
        return [sum(kind_of(each.value or b"") is RecordKind.CLAIM for each in partition) for partition in records]


@asynccontextmanager
async def pair(stage, unique, children, partitions=1, owner="one", **timeouts):
    """Start both under a load; at the end everything was exactly once."""
    here = await stage(apps.ledger(unique("take")), partitions=partitions)
    # A rebalance that ends before the session of a dead member would assign beside it.
    rebalance_ms = max(30_000, 2 * (waits_ms := long_session_ms()))
    group = {
        "session_timeout_ms": waits_ms,
        "rebalance_timeout_ms": rebalance_ms,
        "heartbeat_interval_ms": 200,
        **timeouts,
    }
    revoke_ms = 1000
    # The other one holds no copies before it owns something: all partitions stay with the first.
    in_words = {f"group__{name}": value for name, value in group.items()} | {"timeouts__revoke_ms": revoke_ms}
    # Who is fenced looks for the claim at once, and once more after this time: a busy broker is late with it.
    in_words["restore__retry_backoff_ms"] = int(scaled(1) * 1000)
    started = children.start("ledger", here.app.app_id, instance_id=owner, standby__replicas=1, **in_words)
    await in_thread(started.wait_live, partitions)
    with Load(here):
        tables = {"standby": {"replicas": 1}, "group": group, "timeouts": {"revoke_ms": revoke_ms}}
        async with here.started(instance_id="two", **tables) as service:
            both = Pair(here, started, service)
            control = service.control
            await until(lambda: {each.state for each in control.document().standbys} == {"warm"}, "warm copies")
            yield both
        if started.process.poll() is None:
            assert await in_thread(started.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.parametrize("owner", [pytest.param("one", marks=pytest.mark.whole), ""], ids=["static", "dynamic"])
async def test_a_killed_owner_is_taken_over_from_before_its_session_ends(stage, unique, children, owner):
    """The dead member keeps the group in its rebalance meanwhile: this one processes on, and is ready. Nothing changes
    when the group confirms it."""
    async with pair(stage, unique, children, owner=owner) as both:
        both.owner.kill()
        both.suspect()
        await both.live(1)
        assert (both.taken_over, both.assigned) == ({0}, set()), "the group has not said so"
        (status,) = both.service.restore_status()
        assert (status.restore.warm, status.restore.snapshot) == ("copied", None)
        epochs, claims, unready = both.epochs(), await both.claims(), list[Check]()
        assert both.unready() == []

        def confirmed():
            unready.extend(both.unready())
            return both.assigned == {0} and not both.taken_over

        await until(confirmed, "the new assignment", 60)
        assert (both.epochs(), await both.claims(), unready) == (epochs, claims, [])
        assert both.service.control.document().peers == ()
        assert both.false_alarms == 0


@pytest.mark.whole
async def test_what_was_taken_over_does_not_go_back_to_a_dead_static_member(stage, unique, children):
    """Its session is longer than a rebalance waits for it: it is in the assignment, and gets nothing, although it has
    said that it has warm copies."""
    waits = {"session_timeout_ms": 120_000, "rebalance_timeout_ms": 3000}
    async with pair(stage, unique, children, partitions=4, **waits) as both:
        await until(lambda: len(both.assigned) == 2 and len(both.copies()) == 2, "two and two, with copies of the rest")
        both.owner.kill()
        both.suspect()
        await both.live(4)
        await until(lambda: both.assigned == {0, 1, 2, 3} and not both.taken_over, "the new assignment")
        assert [peer.owned for peer in both.service.control.document().peers] == [()]
        assert (both.phases(), both.false_alarms) == (dict.fromkeys(range(4), "live"), 0)


@pytest.mark.whole
async def test_a_killed_owner_that_comes_back_takes_nothing_away(stage, unique, children):
    """It has the same name, so the coordinator would give it its old partitions at once."""
    async with pair(stage, unique, children, partitions=2) as both:
        both.owner.kill()
        both.suspect()
        again = children.start(
            "ledger", both.here.app.app_id, standby__replicas=1, group__session_timeout_ms=long_session_ms()
        )
        await in_thread(again.wait_http)

        def live():
            here = {number for number, phase in both.phases().items() if phase == "live"}
            return sorted([*here, *again.live()])

        await until(lambda: live() == [0, 1] and len(again.live()) == 1, "one and one")
        await until(lambda: not both.taken_over, "the group knows who claimed")
        assert await in_thread(again.terminate) == 0


@pytest.mark.whole
async def test_a_stop_while_the_group_waits_for_the_dead_ends_in_time(stage, unique, children):
    """It leaves the group; a last snapshot is written, as nobody has taken the partition."""
    async with pair(stage, unique, children, partitions=2) as both:
        both.owner.kill()
        both.suspect()
        await both.live(2)
        async with within(25):
            await both.service.stop()
