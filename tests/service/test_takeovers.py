"""A process that seems to be dead is taken over from at once, on a real broker: it is dead, or it is not."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.protocol import Check
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps, inside
from tests.support.child import Load
from tests.support.deadlines import scaled
from tests.support.stage import until


def long_session_ms():
    """Return a session timeout that is longer than a takeover takes, however busy the machine is. Who is LIVE before it
    is over has not waited for it."""
    return int(scaled(5) * 1000)


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
    await asyncio.to_thread(started.wait_live, partitions)
    with Load(here):
        tables = {"standby": {"replicas": 1}, "group": group, "timeouts": {"revoke_ms": revoke_ms}}
        async with here.started(instance_id="two", **tables) as service:
            both = Pair(here, started, service)
            control = service.control
            await until(lambda: {each.state for each in control.document().standbys} == {"warm"}, "warm copies")
            yield both
        if started.process.poll() is None:
            assert await asyncio.to_thread(started.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.whole
@pytest.mark.parametrize("owner", ["one", ""], ids=["static", "dynamic"])
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
