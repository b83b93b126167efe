"""Finding out what a recovery would find, without a trace."""

import pytest

from snapreplay.service.decisions.examine import Examiner
from snapreplay.service.recovery.inputs import InputReplaced, InputShorter
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.store import store_of
from tests.support.tampering import flip, recreate, tamper, trim

pytestmark = pytest.mark.kafka


async def examined(then, **tables):
    context = await then.here.context(**tables)
    examiner = Examiner(context, store_of(context.app.state()))
    try:
        return examiner, await examiner.examine()
    finally:
        await examiner.close()


async def test_a_partition_that_would_go_live_has_nothing_the_matter(past):
    """The state is restored and proven, and the log is as it was: nobody was fenced, nothing claimed."""
    then = await past()
    before = await then.here.read(then.increments)
    examiner, error = await examined(then)
    assert error is None
    assert examiner.last.increment.batch == 8
    assert examiner.store.digest == examiner.last.increment.digest
    assert await then.here.read(then.increments) == before
    assert examiner.end_offset > before[0][-1].offset


async def test_a_live_owner_does_not_notice(past):
    """It goes on committing with the producer it has."""
    then = await past()
    async with then.here.running() as service:
        epoch = service.restore_status()[0].owner_epoch
        assert (await examined(then))[1] is None
        await then.here.feed(20)
        await then.here.assert_exactly_once(service)
        assert service.restore_status()[0].owner_epoch == epoch


async def test_it_says_what_it_looks_at_and_what_it_waits_for(past):
    """Whoever accepts need not wonder for how long."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    context, news = await then.here.context(), list[str]()
    examiner = Examiner(context, store_of(context.app.state()), news.append)
    try:
        assert isinstance(await examiner.examine(), InputShorter)
    finally:
        await examiner.close()
    assert news[:3] == [
        "looking for the last increment",
        "loading a state to start from",
        "bringing the state forward, then checking the inputs",
    ]
    assert (
        "our position is 120: the log is shorter than it was; asking all brokers, 15 s" in news[3]
    )


async def test_it_fails_as_a_recovery_does(past):
    """The same class and message as the status of a service that tried."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, flip)
    _, error = await examined(then)
    status = await then.here.failure()
    assert (type(error).__name__, error.message) == (status.error.kind, status.error.message)


async def test_the_state_comes_by_changes_where_the_input_is_gone(past):
    """A replay is ruled out; an input that fails the examination does not take the state with it."""
    then = await past()
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    context = await then.here.context(restore={"mode": "replay"})
    examiner = Examiner(context, store_of(context.app.state()))
    try:
        error = await examiner.examine()
        assert type(error).__name__ == "InputTrimmed"
        assert examiner.last is not None
        assert examiner.store.digest != examiner.last.increment.digest
        assert await examiner.bring_forward()
        assert examiner.store.digest == examiner.last.increment.digest
    finally:
        await examiner.close()


async def test_another_topic_of_the_same_name_is_not_replayed(past):
    """It holds as many records, and came after the examination."""
    then = await past()
    context = await then.here.context(restore={"mode": "replay"})
    examiner = Examiner(context, store_of(context.app.state()))
    try:
        assert await examiner.examine() is None
        recreate(then.here.bootstrap_servers, then.input, 1)
        await then.here.send([("k0", {"amount": 7})] * then.here.sent, then.input)
        with pytest.raises(InputReplaced):
            await examiner.replay()
    finally:
        await examiner.close()
