"""B9: whatever became of a commit, and whoever came in between: the state that is kept in memory and the state that is
restored from the log are the same, and so is the batch that comes next."""

import random
from copy import copy
from typing import Any

import pytest

from snapreplay.app.fold import Fold
from snapreplay.app.record import InputRecord
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.live.committer import Committer
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.state.steps import all_of
from snapreplay.state.store import store_of
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.kafka import until
from tests.support.proxy import END_TXN, Proxy

pytestmark = pytest.mark.kafka


class Incarnation:
    """A store and a committer, as a LIVE partition has them; `input` are all records of the input."""

    def __init__(self, context, store, recovered, warm):
        self.input: list[InputRecord] = []
        self.store, self.warm = store, warm
        self.committer = Committer(context, store, recovered.producer, recovered.chain)
        self.fold = Fold(context.app, store, context.partition)

    @classmethod
    async def begin(cls, context, records, store=None, kept=None):
        """By way of memory when something was kept, else with an empty store."""
        store, board = store or store_of(context.app.state()), StatusBoard()
        reporter = Reporter(board, context.partition)
        recovered = await RecoveryDriver(context, store, reporter, kept).recover()
        status: Any = board.get(0)
        begun = cls(context, store, recovered, status.restore.warm)
        begun.input = records
        return begun

    def feed(self, dice, stage):
        """Some records on top of what is there; staged or left as they are."""
        positions = dict(self.committer.chain.last.positions)
        if self.committer._pending is not None:
            positions = self.committer._pending.increment.positions
        (first,) = positions.values()
        records = self.input[first : first + dice.randint(1, 8)]
        self.fold.begin(positions)
        self.fold.feed(records)
        if stage:
            all_of(self.fold.staging())

    def start(self, dice):
        """A batch, or now and then an increment that only points."""
        if dice.random() < 0.2:
            self.committer.start(None)
            return
        self.feed(dice, stage=True)
        self.committer.start(all_of(self.fold.sealing()))

    def going_on_with(self, store):
        """This one's producer and chain, and a store that was kept."""
        begun = copy(self)
        begun.store = begun.committer._store = store
        begun.fold = Fold(self.fold._app, store, self.fold.partition)
        return begun

    async def end(self):
        """What is left of it."""
        await self.committer.discard()
        chain, doubtful = self.committer.chain, self.committer.doubtful
        return RetainedState(chain.last, chain.last_offset, doubtful)

    @property
    def all(self):
        """What must be the same by either way."""
        chain = self.committer.chain
        return (
            dict(self.store.committed_view()),
            self.store.digest,
            self.store.stream_time_ms,
            (chain.last, chain.last_offset),
        )


COMMITS = ("none", "answered", "arrived", "lost", "unsent")
OTHERS = (None, None, "claims", "commits")


async def all_records(here):
    reader = await here.cluster.reader()
    source = TopicPartition(here.app.inputs[0].name, 0)
    try:
        slices = [each async for each in reader.read(source, *await reader.bounds(source))]
    finally:
        await reader.close()
    return [record for each in slices for record in each]


async def disturbed(one, dice, proxy, commit):
    """A batch whose commit ends like this, perhaps with the next one applied on top."""
    proxy.fault = lambda _: "pass"
    if commit in ("arrived", "lost"):
        verdict = "mute" if commit == "arrived" else "drop"
        proxy.fault = lambda key: verdict if key == END_TXN else "pass"
    asked = proxy.seen.get(END_TXN, 0)
    if commit != "none":
        one.start(dice)
    if commit == "answered":
        await one.committer.settle()
    if dice.random() < 0.5:
        one.feed(dice, stage=dice.random() < 0.5)
    if commit in ("arrived", "lost"):
        await until(lambda: proxy.seen.get(END_TXN, 0) > asked)


async def intruded(here, records, dice, other):
    """Another owner that claims, or also commits a batch."""
    if other is None:
        return
    two = await Incarnation.begin(await here.context(instance_id="two"), records)
    if other == "commits":
        two.start(dice)
        await two.committer.settle()
    await two.end()


async def in_the_log(here, increment):
    """Whether an independent reader finds it."""
    (records,) = await here.read(f"{here.app.app_id}-increments")
    found = [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]
    return increment in found


async def judged(here, kept, other):
    """What must have become of what was kept, by what the log holds."""
    if other == "commits":
        return None
    if kept.doubtful is None:
        return "kept"
    return "merged" if await in_the_log(here, kept.doubtful) else "dropped"


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
async def test_b9_warm_and_cold_lead_to_the_same_state_and_the_same_next_batch(
    stage, unique, broker, rounds
):
    """Over random courses: commits answered, arrived without an answer, lost or never asked for, the next batch applied
    on top or not, another owner that claims or commits in between. What the log holds is merged, what it does not
    hold is dropped, what another owner wrote is loaded."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - a failure shows it
    dice, seen = random.Random(seed), []
    here, proxy = await stage(apps.ledger(unique("b9-random"))), Proxy(broker.bootstrap_servers)
    await here.feed(20 * rounds)
    records = await all_records(here)
    async with proxy.through():
        one = await Incarnation.begin(await here.context(), records)
        for number in range(rounds):
            commit = COMMITS[number % len(COMMITS)]
            # Nobody in between at first: so that each outcome is seen whatever the dice say.
            other = dice.choice(OTHERS) if number >= len(COMMITS) else None
            where = f"seed {seed}, round {number}: {commit}, {other}"
            await disturbed(one, dice, proxy, commit)
            kept = await one.end()
            proxy.fault = lambda _: "pass"
            await intruded(here, records, dice, other)
            warm = await Incarnation.begin(await here.context(), records, one.store, kept)
            assert warm.warm == await judged(here, kept, other), where
            await warm.end()
            cold = await Incarnation.begin(await here.context(), records)
            assert cold.warm is None
            assert warm.all == cold.all, where
            seen.append(warm.warm)
            one = cold.going_on_with(warm.store)
        await one.end()
    assert {"merged", "dropped", "kept"} <= set(seen), f"seed {seed}: {seen}"
