"""A partition is taken over from a process that seems to be dead, before the group has noticed."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.status import PartitionStatus, StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.effects import Load
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.suspicion import QUIET_SECONDS
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.supervisor import Supervisor
from tests.support import apps, reference
from tests.support.stage import until

WARM = {"standby": {"replicas": 1}}
SESSION_SECONDS = 3.0


class Side:
    """A process without a group: the test says what is assigned, and what the coordinator would answer."""

    def __init__(self, bench, context):
        self.bench, self.board = bench, StatusBoard()
        self.me = Peer(context.identity.process_id, context.identity.instance_id, "host", "")
        self.told: list[dict[int, int]] = []
        self.gives: set[int] = set()
        self.gives_away = False
        self.phases: list[str] = []
        self.board.subscribe(lambda status: self.phases.append(status.phase.value))
        self.supervisor: Any = Supervisor(
            context.app, context.settings, context.cluster, context.view, context.identity, self.board, lambda *_: None
        )
        self.supervisor.group = self

    async def is_assigned_to_us(self, partition):
        return partition in self.gives

    def rejoin(self):
        """Note what is reported to the group."""
        self.told.append(dict(self.supervisor.holding.epochs))

    @property
    def status(self):
        return self.board.get(0)

    async def phase(self, name, seconds=30.0):
        await until(lambda: self.status and self.status.phase == name, name, seconds)
        return self.status

    async def position(self, offset):
        await until(lambda: self.status.inputs and self.status.inputs[0].position >= offset, offset)

    def suspects(self, other, *, silent_seconds=None):
        self.supervisor.take_over(other.me.process_id, "connection refused", silent_seconds=silent_seconds)

    def copies(self, *owners, first=(0,), claimed=()):
        """An assignment that leaves partition 0 to the first of `owners`; the others are there, too."""
        peers = [each.me for each in owners]
        peers[0] = Peer(peers[0].process_id, peers[0].instance_id, "host", "", owned=(0,))
        return Share((), (0,), (), first, tuple(peers), claimed)

    async def warm(self, batch):
        await self.copied("warm", batch)

    async def ahead(self, batch):
        await self.copied("ahead", batch)

    async def copied(self, state, batch):
        def there():
            copies = self.board.standbys()
            return bool(copies) and (copies[0].state, copies[0].batch) == (state, batch)

        await until(there, f"a copy of batch {batch}: {state}", 60.0)


def counts():
    metrics = ("snapreplay_takeovers_total", "snapreplay_false_alarms_total")
    return [EVENTS.get_sample_value(each, {"app": "app"}) or 0 for each in metrics]


@asynccontextmanager
async def two(bench, **standby):
    """An owner with ten records, and a process with a warm copy of them, which is the first to take over."""
    await bench.prepare(None, **WARM)
    one, other = [Side(bench, await bench.context(name)) for name in ("one", "two")]
    try:
        one.gives = {0}
        one.supervisor.assigned({0})
        await one.phase("live")
        await bench.feed(10)
        await one.position(10)
        other.supervisor.assigned(set(), other.copies(one, other, **standby))
        await other.warm(one.status.batch)
        yield one, other
    finally:
        for each in (one, other):
            await each.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)


async def exactly_once(bench, side):
    """Outputs one per input record, in order, and the state, as folded by hand."""
    await side.position(bench.sent)
    inputs = await bench.read(bench.input)
    outputs, states = reference.balances(bench.input, inputs, apps.add, lambda _: False)
    found = await bench.read(bench.output)
    assert reference.decoded(found[0]) == outputs[0]
    assert reference.as_plain(side.supervisor.runners[0].store.committed_view()) == states[0]


async def test_the_first_successor_takes_over_and_tells_the_group_of_its_claim(bench):
    """Nothing is loaded. The group hears of it once the log has the claim, so that the later owner counts there."""
    before = counts()
    async with two(bench) as (one, other):
        await one.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)
        other.suspects(one)
        assert (await other.phase("live")).restore.warm == "copied"
        assert other.told == [{0: other.status.owner_epoch}]
        assert other.supervisor.taken_over == {0}
        await bench.feed(10)
        await exactly_once(bench, other)
        # The dead one is a static member: the coordinator keeps it until its session is over.
        gone = one.me.process_id
        other.supervisor.assigned({0}, Share((0,), peers=(one.me, other.me), claimed=(0,), absent=(gone,)))
        assert other.supervisor.taken_over == set()
        assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 0]


async def test_what_the_board_shows_decides_nothing(bench):
    """An earlier runner of the partition that has not ended yet publishes there, too."""
    async with two(bench) as (one, other):
        await one.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)
        other.suspects(one)
        await other.phase("live")
        told, holding = list(other.told), other.supervisor.holding
        other.board.publish(PartitionStatus(0, Phase.FENCED, owner_epoch=1))
        assert other.told == told
        assert other.supervisor.holding == holding
        assert holding.owned == {0}


@pytest.mark.parametrize("why", ["not first", "not warm", "unknown"])
async def test_nothing_is_taken_over_by_who_is_not_to(bench, why):
    """Another one is first, or the session timeout decides."""
    async with two(bench, first=() if why == "not first" else (0,)) as (one, other):
        if why == "not warm":
            other.supervisor.standbys._held[0]._lag_offsets = 1_000_000
        other.suspects(other if why == "unknown" else one)
        assert other.status is None
        await asyncio.sleep(5)
        assert one.phases[-1] == "live"
        assert (other.status, other.told) == (None, [])


async def test_a_living_owner_is_fenced_and_does_not_fence_back(bench):
    """Every record counts once. While the group rebalances, the coordinator gives the partition to no member."""
    before = counts()
    async with two(bench) as (one, other):
        one.gives = set()
        other.suspects(one)
        await other.phase("live")
        epoch = other.status.owner_epoch
        await bench.feed(10)
        await one.phase("fenced")
        await asyncio.sleep(120)
        one.supervisor.assigned(set(), one.copies(other, one))
        other.supervisor.assigned({0}, Share((0,), peers=(one.me, other.me), claimed=(0,)))
        await bench.feed(10)
        await exactly_once(bench, other)
        assert (other.phases[-1], other.status.owner_epoch) == ("live", epoch)
        assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1]
        await one.warm(other.status.batch)


async def test_a_takeover_yields_to_a_third_process_and_says_so_at_once(bench):
    """The assignment is from before the claim, and the third process fences. A join before the runner has ended does
    not name the partition any more: the group would give it back, and the two would fence each other."""
    async with two(bench) as (one, other):
        other.suspects(one)
        await other.phase("live")
        assert other.supervisor.holding.owned == {0}
        third = Peer("third", "third", "host", "", owned=(0,))
        other.supervisor.assigned(set(), Share((), (0,), (), (0,), (one.me, other.me, third)))
        assert other.status.phase == "live"
        assert other.supervisor.holding.owned == set()
        assert other.supervisor.held == {0}, "a drain waits for it"
        await until(lambda: other.status is None, "the release")
        assert other.supervisor.held == set()


async def test_a_restarted_static_member_names_as_its_own_what_its_predecessor_had(bench):
    """It gets the old assignment, in which the partition is that of its predecessor's process id."""
    async with two(bench) as (one, other):
        before = Peer("before", "one", "host", "", owned=(0,))
        one.supervisor.assigned({0}, Share((0,), peers=(before, other.me)))
        assert one.supervisor.holding.owned == {0}


async def test_a_takeover_that_does_not_come_to_its_claim_is_given_up(bench, monkeypatch):
    """By then the group has decided. The copy is what it was: nothing is loaded."""
    async with two(bench) as (one, other):
        loads = Loads(monkeypatch)

        async def never(*_):
            await asyncio.Event().wait()

        with monkeypatch.context() as hangs:
            hangs.setattr("snapreplay.service.recovery.driver.fenced_by_owner", never)
            other.suspects(one)
            await other.phase("fencing")
            await until(lambda: other.status is None, "the release", SESSION_SECONDS + 5)
        await other.warm(one.status.batch)
        assert (one.phases[-1], loads.count) == ("live", 0)


@asynccontextmanager
async def ahead(bench):
    """The owner of ten records and a process with a warm copy of them. The owner is dead, and the log has lost the last
    batch."""
    async with two(bench) as (one, other):
        batch = one.status.batch
        await one.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)
        bench.log(bench.increments).cut(bench.last_batch()[0])
        await other.ahead(batch)
        yield one, other, batch


async def test_the_only_copy_of_a_lost_batch_outlives_a_takeover_that_is_given_up(bench):
    """The owner may be suspended, so it is not fenced for 15 s; the session is over before. When the group gives the
    partition to this process, the loss is named, and the copy is still there."""
    async with ahead(bench) as (one, other, batch):
        other.suspects(one)
        await other.phase("fencing")
        await until(lambda: other.status is None, "the release", SESSION_SECONDS + 5)
        await other.ahead(batch)
        other.supervisor.assigned({0})
        status = await other.phase("failed", 300.0)
        assert status.error.kind == "IncrementsBehind"
        assert f"batch {batch} was committed" in status.error.message
        other.supervisor.assigned(set(), other.copies(one, other))
        await other.ahead(batch)
        assert other.supervisor.standbys.readable(0).last.batch == batch


async def test_the_only_copy_of_a_lost_batch_is_not_given_up_for_an_assignment(bench, caplog):
    """It is held until another chain continues, or the log has the batch again."""
    async with ahead(bench) as (one, other, batch):
        other.supervisor.assigned(set(), Share(peers=other.copies(one, other).peers))
        await asyncio.sleep(10)
        await other.ahead(batch)
        bench.broker.group_offsets.clear()  # nothing else tells of the loss
        three = Side(bench, await bench.context("three"))
        three.supervisor.assigned({0})
        await three.phase("live")
        await bench.feed(10)
        await until(lambda: not other.supervisor.standbys.held, "its end")
        assert other.board.standbys() == []
        await three.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)
        assert "is lost when this process ends" not in caplog.text


async def test_stopping_the_only_copy_of_a_lost_batch_is_reported(bench, caplog):
    """A stop cannot write it: this process is not the owner."""
    async with ahead(bench) as (_, _, batch):
        pass
    assert f"partition 0: its log has lost batch {batch}, and the warm copy that has it is lost when" in caplog.text


async def test_who_is_fenced_in_the_middle_of_a_takeover_gives_it_up(bench):
    """The owner lives, and the coordinator has given it the partition: it is not fenced in return."""
    async with two(bench) as (one, other):
        other.suspects(one)
        await other.phase("live")
        epoch = other.status.owner_epoch
        await bench.feed(10)  # the coordinator has not heard of the takeover, and the owner fences in return
        await until(lambda: one.status.phase == "live" and one.status.owner_epoch > epoch, "the owner again")
        await bench.feed(10)
        await other.phase("fenced")
        other.supervisor.assigned(set(), other.copies(one, other))
        await until(lambda: other.status is None, "the release")
        await exactly_once(bench, one)


async def test_a_silent_owner_that_commits_lives(bench):
    """Only its HTTP is silent. If it commits nothing either, it is taken over from."""
    async with two(bench) as (one, other):
        for _ in range(20):
            await bench.feed(1)
            await asyncio.sleep(0.5)
        other.suspects(one, silent_seconds=3.0)
        other.suspects(one, silent_seconds=3.0)
        for _ in range(10):
            await bench.feed(1)
            await asyncio.sleep(0.5)
        assert other.status is None
        await asyncio.sleep(QUIET_SECONDS + 1)
        assert other.status is None
        other.suspects(one, silent_seconds=3.0)
        other.supervisor.assigned(set(), other.copies(other))  # it has left, and somebody else owns the partition
        await asyncio.sleep(QUIET_SECONDS + 1)
        assert other.status is None
        other.supervisor.assigned(set(), other.copies(one, other))
        other.suspects(one, silent_seconds=3.0)
        await other.phase("live")


async def test_who_takes_over_from_us_while_its_commits_are_looked_for_lives(bench):
    """Each is silent to the other one. The other one has waited less."""
    async with two(bench) as (one, other):
        await bench.feed(1)
        await one.position(11)
        await other.warm(one.status.batch)
        other.suspects(one, silent_seconds=3.0)
        await asyncio.sleep(0.5)
        other.supervisor.assigned({0}, Share((0,), peers=(one.me, other.me)))
        await other.phase("live")
        other.supervisor.assigned(set(), other.copies(one, other))
        await until(lambda: other.status is None, "the release")
        await other.warm(one.status.batch)
        await asyncio.sleep(QUIET_SECONDS + 1)
        assert other.status is None


async def test_a_stop_in_the_middle_of_a_takeover_loses_nothing(bench):
    """It is a partition like the others: its last snapshot is written."""
    async with two(bench) as (one, other):
        await one.supervisor.stop(last_snapshot=False, deadline_seconds=20.0)
        other.suspects(one)
        await other.phase("live")
        await bench.feed(10)
        await other.position(20)
        await other.supervisor.stop(last_snapshot=True, deadline_seconds=20.0)
        assert other.status.snapshot.state == "pointed"
        other.suspects(one)
    assert (await bench.restored()).warm is None


class Loads:
    """Notes each load of a snapshot, or of the genesis."""

    def __init__(self, monkeypatch):
        self.count, perform = 0, RecoveryExecutor.perform

        async def noted(executor, effect):
            self.count += isinstance(effect, Load)
            return await perform(executor, effect)

        monkeypatch.setattr(RecoveryExecutor, "perform", noted)


async def test_who_is_given_nothing_gives_up_its_copies(bench):
    """Another process holds them. While the increments topic is gone, nothing is assigned, and they are kept."""
    async with two(bench) as (one, other):
        share = other.copies(one, other, first=())
        other.supervisor.assigned(set(), Share())
        await other.warm(one.status.batch)
        other.supervisor.assigned(set(), Share(peers=share.peers))
        assert other.supervisor.standbys.held == set()
        assert other.board.standbys() == []


async def test_a_partition_that_moves_away_stays_as_a_copy(bench, monkeypatch):
    """Nothing is loaded again. It is compared with the log like every other copy."""
    async with two(bench) as (one, other):
        loads, copied = Loads(monkeypatch), other.copies(one, other)
        await bench.feed(10)
        await one.position(20)
        batch = one.status.batch
        one.supervisor.assigned(set(), one.copies(other, one))
        await one.warm(batch)
        other.supervisor.assigned({0}, Share((0,), peers=copied.peers))
        await other.phase("live")
        await bench.feed(10)
        await other.position(30)
        await one.warm(other.status.batch)
        digest = other.supervisor.runners[0].store.digest
        assert one.board.standbys()[0].digest == str(digest)
        assert loads.count == 0
