"""Tests of what the simulator found in the product, each as the history that found it, without the rest of the
seed."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from snapreplay.service.control.status import DigestProof
from snapreplay.service.live.pipeline import Live
from snapreplay.service.ports import LogRecord
from snapreplay.service.recovery import executor
from snapreplay.service.recovery.follower import Tally, prove
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.composite import Store
from tests.simulation import scenario
from tests.simulation.events import last_increment
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Link
from tests.simulation.producer import SimAppender
from tests.simulation.program import INCREMENTS, SNAPSHOTS
from tests.simulation.replacing import create_own, replace_own
from tests.simulation.run import run_seed, run_world
from tests.simulation.scenario import Event, Scenario
from tests.simulation.world import World

QUIET = replace(
    scenario.draw(random.Random(0)),
    partitions=1,
    processes=1,
    inputs=1,
    records=60,
    changes=True,
    mode="changes",
    dead_letter=False,
    every_records=3,
    kept=3,
    records_max=3,
    fat=False,
    named=False,
    timed=False,
    idle_advance_ms=0,
    poison=0.0,
    slow_markers=False,
    chaos_seconds=4.0,
    events=(),
    epilogue="restart",
    slow_steps=False,
)
"""A history without faults and events; each test adds its own."""


class Script:
    """A history with a script instead of drawn faults: `plan` maps a site to the fault of its nth request, counted from
    0 over all."""

    def __init__(self, plan: dict[str, dict[int, str]], drawn: Scenario = QUIET) -> None:
        self.world = World(VirtualLoop(), drawn, random.Random(1))
        self.seen: dict[str, int] = dict.fromkeys(plan, 0)
        self.played: list[str] = []
        self.plan = plan
        faults = self.world.network.faults
        faults.draw = self.draw if plan else faults.draw  # type: ignore[method-assign]  # the script replaces the dice

    def draw(self, site: str) -> str | None:
        if site not in self.plan or not self.world.network.faults.active:
            return None
        at, self.seen[site] = self.seen[site], self.seen[site] + 1
        kind = self.plan[site].get(at)
        if kind is not None:
            self.played.append(f"{site}.{kind}")
        return kind

    def run(self) -> str | None:
        """The problem, if any."""
        return run_world(self.world.loop, self.world, self.world.rng)

    def when(self, happened: Callable[[], object], then: Callable[[], None]) -> None:
        """Do it as soon as that is so."""
        if happened():
            then()
        else:
            self.world.loop.call_later(0.01, self.when, happened, then)

    def when_processed(self, then: Callable[[], None]) -> None:
        """Do it when the input ends with a record, and that is processed. Nothing is written from then on until
        `resume`."""
        world, topic = self.world, self.world.inputs[0]
        log = world.broker.log(topic, 0)

        def is_processed() -> bool:
            last = last_increment(world, 0)
            return last is not None and last.positions[topic] == log.end

        def hold() -> None:
            world.feeder.is_held = True
            self.when(is_processed, then)

        self.when(lambda: log.visible(log.end - 1, committed_only=True), hold)

    def resume(self) -> None:
        self.world.feeder.is_held = False

    def lose(self, topic: str = INCREMENTS) -> None:
        """It is deleted and made again."""
        assert replace_own(self.world, topic)
        create_own(self.world, topic)


def play(drawn: Scenario, plan: dict[str, dict[int, str]]) -> tuple[str | None, Script, World]:
    script = Script(plan, drawn)
    return script.run(), script, script.world


# What must not be taken for what: a history, and the request with which it goes wrong.
SCRIPTED = {
    # An empty increment whose commit is not answered leaves nothing to merge ("no sealed batch to merge").
    "a pointer in doubt for a batch in doubt": (QUIET, "end", "answer_lost", range(2, 14)),
    # Between the end beyond the claim and the claim itself the reader may come to a stale leader: ask again.
    "a connection that breaks into a stale leader for a foreign log": (
        replace(QUIET, events=(Event(0.001, "stale broker", 2.0),)), "bounds", "renew", range(6),
    ),
    # What a newer owner wrote and trimmed meanwhile (LogCut, NoRestoreMode) is a newer owner.
    "a successor's work for damage": (
        replace(QUIET, processes=2, partitions=2, kept=2), "bounds", "stall_after", range(2, 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "nth"), [(name, nth) for name, (*_, every) in SCRIPTED.items() for nth in every])
def test_one_thing_is_not_taken_for_another(name: str, nth: int) -> None:
    """Each history heals after the one fault that is in it."""
    drawn, site, kind, _ = SCRIPTED[name]
    problem, script, _ = play(drawn, {site: {nth: kind}})
    assert script.played
    assert problem is None


BEGINS_LATE = replace(QUIET, begins_late=True, partitions=2, processes=2)


@pytest.mark.parametrize(
    "plan",
    [
        *({"fill": {nth: "crash_between"}} for nth in range(4)),
        *({"fence": {nth: "crash_after"}} for nth in range(2)),
        {"fence": {0: "crash_after"}, "fill": {0: "crash_between"}},
        {"fill": {2: "deadline", 3: "deadline"}},
    ],
    ids=str,
)
def test_an_init_that_was_cut_short_is_run_again(plan: dict[str, dict[int, str]]) -> None:
    """No partition is FAILED meanwhile, and the next one completes it. After two it takes `--state-is-lost`."""
    problem, script, world = play(BEGINS_LATE, plan)
    assert script.played
    assert problem is None
    lasts = 15.0 if world.inits_cut > 1 else 0.0
    assert lasts < world.loop.time() < lasts + 10.0


def test_an_init_that_was_killed_in_the_first_partition_is_no_owner() -> None:
    """It had added a partition to its transaction, and written nothing."""
    assert run_seed(716346).problem is None


def test_links_of_the_dead_are_silent() -> None:
    """Nothing breaks where nothing happens; a crashed process sends nothing more, though its tasks still try."""
    problem, _, world = play(QUIET, {})
    assert problem is None
    assert world.network.faults.counts["mode changes"] > 0
    dead = world.everybody[-1]
    dead.dead = True
    with pytest.raises(asyncio.CancelledError):
        Link(world.network, dead).draw("end")


def lose_the_log_and_take_away(script: Script, then: Callable[[], None]) -> str | None:
    """Make T-ZengLiang again after 2 seconds, when the partition is another's; 6 seconds later it is ours again."""
    world = script.world

    def happen() -> None:
        script.lose()
        then()
        take_away(world)

    world.loop.call_later(2.0, lambda: world.processes[0].soon(happen))
    return script.run()


def take_away(world: World) -> None:
    process = world.processes[0]
    process.assigned(set())
    world.loop.call_later(6.0, process.soon, process.assigned, {0})


@pytest.mark.parametrize("nth", range(3))
def test_a_state_is_not_given_up_while_the_log_is_asked_for_it(nth: int) -> None:
    """Whether the log holds it is not known yet when the time to end is over."""
    script = Script({"bounds": {}})

    def no_answer() -> None:
        script.plan["bounds"] = {script.seen["bounds"] + nth: "lost"}

    assert lose_the_log_and_take_away(script, no_answer) is None
    assert script.played


def test_a_state_is_not_given_up_with_the_work_that_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way ends when the time to end is over; the state in memory stays until the log holds it."""
    hung: list[Live] = []
    run = Live.run

    async def hang_once(live: Live) -> None:
        try:
            await run(live)
        finally:
            hung.append(live)
            if len(hung) == 1:
                await asyncio.sleep(3600)

    monkeypatch.setattr(Live, "run", hang_once)
    assert lose_the_log_and_take_away(Script({"end": {}}), lambda: None) is None
    assert hung


@pytest.mark.parametrize("nth", range(3, 6))
def test_a_batch_in_doubt_is_merged_once(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is taken away while its state is proven, after the batch in doubt was merged: nothing of it is
    lost, and the next recovery continues from there."""
    script = Script({"end": {nth: "answer_lost"}})
    proofs: list[int] = []

    async def taken_away_once(store: Store, last: Increment, tally: Tally) -> DigestProof | None:
        proofs.append(last.batch)
        if len(proofs) == 1:
            take_away(script.world)
            await asyncio.sleep(3600)
        return await prove(store, last, tally)

    def lose() -> None:
        script.lose()
        monkeypatch.setattr(executor, "prove", taken_away_once)

    script.when(lambda: script.played, lose)
    assert script.run() is None
    assert len(proofs) > 1


def test_a_snapshot_in_two_topics_is_not_pointed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """T-QuanLiang is made again between two chunks: the second one lies where the first one was."""
    script = Script({"end": {}}, replace(QUIET, fat=True, every_records=8))
    append = SimAppender.append

    async def append_after_loss(appender: SimAppender, record: LogRecord, partition: int) -> int:
        if script.world.broker.log(SNAPSHOTS, partition).end == 1 and not script.world.own_replaced:
            script.lose(SNAPSHOTS)
        return await append(appender, record, partition)

    monkeypatch.setattr(SimAppender, "append", append_after_loss)
    assert script.run() is None
    assert script.world.own_replaced


def test_a_callback_that_fails_is_a_problem() -> None:
    """It is not awaited, so its error would be lost."""
    script = Script({})
    script.world.loop.call_later(1.0, script.world.broker.topic_ids.pop, "gone")
    assert "a callback failed: KeyError('gone')" in (script.run() or "")


@pytest.mark.parametrize("nth", [2, 4])
def test_our_own_fence_that_ended_our_transaction_is_no_other_owner(nth: int) -> None:
    """T-ZengLiang is made again while a transaction is open; the fence that ends it is not answered."""
    script = Script({"fill": {nth: "deadline"}, "fence": {1: "answer_lost"}})
    script.when(lambda: script.played, script.lose)
    assert script.run() is None
    assert script.played == ["fill.deadline", "fence.answer_lost"]
    assert not script.world.network.faults.counts["without a log: StateDisputed"]


@pytest.mark.parametrize("seed", [6002594, 6002632])
def test_a_stale_leader_shifts_no_offsets(seed: int) -> None:
    """In the middle of a recovery it answers that what the last increment names is not there."""
    assert run_seed(seed).problem is None


def test_a_snapshot_that_is_asked_for_covers_what_came_before_its_pointer() -> None:
    """A copy had applied a batch between a snapshot and its pointer. As the owner it took nothing for changed since."""
    assert run_seed(417087, decisions=True, standbys=True).problem is None


def test_a_pause_is_reported_once_it_is_committed() -> None:
    """It is asked for during a recovery, which writes nothing of it."""
    assert run_seed(89).problem is None
