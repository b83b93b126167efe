"""The reading half of a recovery on a real broker: it needs no owner, and makes none."""

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import effects, events
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.core.search import Window
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.plan import FromSnapshot
from snapreplay.state.store import store_of

pytestmark = pytest.mark.kafka


@pytest.fixture
async def performer(past):
    """Of partition 0 of a ledger that has run, with (its past, its context, its store)."""
    then = await past()
    context = await then.here.context()
    store = store_of(context.app.state())
    made = RecoveryExecutor(context, store, Reporter(StatusBoard(), context.partition))
    yield made, then, context, store
    made.end_load()
    await made.close_reader()


async def last_of(made, context):
    end_offset = (await (await made.reader()).bounds(context.increments)).end_offset
    return (await made.perform(effects.ReadWindow(Window(0, end_offset, end_offset)))).found


async def test_the_state_comes_without_an_owner(performer):
    """Found, loaded and brought forward to the recorded digest, and the log is as it was: no claim, no marker."""
    made, then, context, store = performer
    before = await then.here.read(then.increments)
    last = await last_of(made, context)
    start = FromSnapshot(last.increment.pointers[0])
    loaded = await made.perform(effects.Load(start))
    assert loaded.base.batch == start.pointer.batch
    advanced = await made.perform(effects.Advance(loaded.base, last, RestoreMode.CHANGES))
    assert isinstance(advanced, events.Advanced)
    assert made.records_since_snapshot == 40
    assert store.digest == last.increment.digest
    assert await then.here.read(then.increments) == before


async def test_the_place_for_a_load_is_kept_until_its_user_ends_it(performer):
    """A load that is repeated takes no second one; ending it twice gives back one."""
    made, _, context, _ = performer
    start = FromSnapshot((await last_of(made, context)).increment.pointers[0])
    await context.restores.acquire()
    for _ in range(2):
        await made.perform(effects.Load(start))
    assert context.restores.locked()
    made.end_load()
    made.end_load()
    await context.restores.acquire()
    assert context.restores.locked()


async def test_a_closed_reader_is_followed_by_a_new_client(performer):
    """What a stale leader said is asked again of another connection."""
    made, *_ = performer
    first = await made.reader()
    assert await made.reader() is first
    await made.close_reader()
    assert await made.reader() is not first
