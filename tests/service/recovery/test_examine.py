"""Finding out what a recovery would find, without a trace."""

from contextlib import asynccontextmanager

import pytest

from snapreplay.service.recovery.examine import Examiner
from snapreplay.service.recovery.input_identity import InputReplaced
from snapreplay.state.stores import store_of


@asynccontextmanager
async def examining(bench, **tables):
    """Provide an examiner, and close it."""
    context = await bench.context(**tables)
    examiner = Examiner(context, store_of(context.app.state()))
    try:
        yield examiner
    finally:
        await examiner.close()


async def examined(bench, **tables):
    async with examining(bench, **tables) as examiner:
        return examiner, await examiner.examine()


async def test_a_partition_that_would_go_live_has_nothing_the_matter(bench):
    """The state is restored and proven, and the log is as it was: no owner was fenced, nothing claimed."""
    await bench.past()
    before = await bench.read(bench.increments)
    examiner, error = await examined(bench)
    assert error is None
    assert examiner.last.increment.batch == 8
    assert examiner.store.digest == examiner.last.increment.digest
    assert await bench.read(bench.increments) == before
    assert examiner.end_offset > before[0][-1].offset


async def test_the_state_comes_by_changes_where_the_input_is_gone(bench):
    """A replay is ruled out; an input that fails the examination does not take the state with it."""
    await bench.past()
    await bench.feed(20)
    bench.trim(bench.input, 130)
    async with examining(bench, restore={"mode": "replay"}) as examiner:
        error = await examiner.examine()
        assert type(error).__name__ == "InputTrimmed"
        assert examiner.last is not None
        assert examiner.store.digest != examiner.last.increment.digest
        assert await examiner.bring_forward()
        assert examiner.store.digest == examiner.last.increment.digest


async def test_another_topic_of_the_same_name_is_not_replayed(bench):
    """It holds as many records, and came after the examination."""
    await bench.past()
    async with examining(bench, restore={"mode": "replay"}) as examiner:
        assert await examiner.examine() is None
        bench.recreate(bench.input)
        await bench.send([("k0", {"amount": 7})] * bench.sent, bench.input)
        with pytest.raises(InputReplaced):
            await examiner.replay()
