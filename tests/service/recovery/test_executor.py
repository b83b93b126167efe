"""The reading half of a recovery it needs no owner, and makes none."""

import asyncio

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import effects, events
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.search import SearchWindow
from snapreplay.service.recovery import executor
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.rates import Work
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.plan import FromSnapshot
from snapreplay.state.stores import store_of


async def performer(bench):
    """Make the performer of partition 0 of a ledger that has run; with its context and its store."""
    await bench.past()
    context = await bench.context()
    store = store_of(context.app.state())
    return RecoveryExecutor(context, store, Reporter(StatusBoard(), 0)), context, store


async def last_of(made, context):
    end_offset = (await (await made.follower.reader()).bounds(context.increments)).end_offset
    return (await made.perform(effects.ReadWindow(SearchWindow(0, end_offset)))).found


async def test_the_state_comes_without_an_owner(bench):
    """Found, loaded and brought forward to the recorded digest, and the log is as it was: no claim, no marker."""
    made, context, store = await performer(bench)
    before = await bench.read(bench.increments)
    last = await last_of(made, context)
    start = FromSnapshot(last.increment.pointers[0])
    loaded = await made.perform(effects.Load(start, last))
    assert loaded.base.batch == start.pointer.batch
    advanced = await made.perform(effects.Advance(loaded.base, last, RestoreMode.CHANGES))
    assert isinstance(advanced, events.Advanced)
    assert made.records_since_snapshot == 40
    assert store.digest == last.increment.digest
    assert await bench.read(bench.increments) == before


async def test_the_place_for_a_load_is_kept_until_its_user_ends_it(bench):
    """A load that is repeated takes no second one; ending it twice gives back one."""
    made, context, _ = await performer(bench)
    last = await last_of(made, context)
    start = FromSnapshot(last.increment.pointers[0])
    await context.restores.acquire()
    for _ in range(2):
        await made.perform(effects.Load(start, last))
    assert context.restores.locked()
    made.end_load()
    made.end_load()
    await context.restores.acquire()
    assert context.restores.locked()


async def test_only_work_teaches_the_rates_of_restores(bench, monkeypatch):
    """The wait for a place is no loading, and the order of the state is no advancing, however long both take."""
    made, context, _ = await performer(bench)

    async def slow(steps):
        await asyncio.sleep(5)
        await run_cooperatively(steps)

    monkeypatch.setattr(executor, "run_cooperatively", slow)
    last = await last_of(made, context)
    for _ in range(2):
        await context.restores.acquire()
    loading = asyncio.create_task(made.perform(effects.Load(FromSnapshot(last.increment.pointers[0]), last)))
    await asyncio.sleep(5)
    assert not loading.done()
    context.restores.release()
    base = (await loading).base
    await made.perform(effects.Advance(base, last, RestoreMode.CHANGES))
    seconds = made.worked.seconds
    assert seconds[Work.LOADING] < 4
    assert seconds[Work.ADVANCING] < 4
    assert seconds[Work.FINISHING] > 4
