"""Is each input still the log that was processed? Real topics, trimmed, deleted, made again."""

import pytest

from snapreplay.service.partition import inputs as module
from snapreplay.service.ports import NewTopic
from tests.support import apps
from tests.support.tampering import grow, recreate, trim

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A stale leader is believed for half a second here."""
    monkeypatch.setattr(module, "STALE_LEADER_SECONDS", 0.5)
    monkeypatch.setattr(module, "ASK_AGAIN_SECONDS", 0.1)


async def test_an_input_trimmed_up_to_our_position_is_fine(past):
    """Everything that is gone was processed; the anchor that is gone proves nothing."""
    then = await past()
    trim(then.here.bootstrap_servers, then.input, 0, 120)
    async with then.here.running() as service:
        assert service.view(0)["k0"]["n"] == 6


async def test_an_input_trimmed_beyond_our_position_fails(past):
    """FAILED with position and log start: never a silent jump over records nobody has seen."""
    then = await past()
    await then.here.feed(30)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    status = await then.here.failure()
    assert status.error.kind == "InputTrimmed"
    assert f"{then.input}-0" in status.error.message
    assert "offset 120, the log begins at 130; 10 offsets are gone" in status.error.message
    assert "retention.ms" in status.error.hint


async def test_an_input_trimmed_behind_the_check_fails_all_the_same(past, monkeypatch):
    """The first read finds it trimmed; the next recovery names it."""
    then = await past()
    await then.here.feed(30)
    check = module.check_inputs

    async def check_and_trim(context, last):
        await check(context, last)
        trim(then.here.bootstrap_servers, then.input, 0, 130)

    monkeypatch.setattr(module, "check_inputs", check_and_trim)
    status = await then.here.failure()
    assert status.error.kind == "InputTrimmed"
    assert status.owner_epoch is not None, "it was never LIVE"


async def test_a_shorter_input_was_made_again(past):
    """Its end lies before our position, and no broker says otherwise for long enough."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(10)
    status = await then.here.failure()
    assert status.error.kind == "InputShorter"
    assert "ends at 10, our position is 120" in status.error.message
    assert "deleted and re-created" in status.error.hint


async def test_a_longer_input_that_was_made_again_is_known_by_its_anchor(past):
    """Another record stands where the last one was that we processed."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(150)
    status = await then.here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"{then.input}-0 offset 119" in status.error.message
    assert "new app id" in status.error.hint


async def test_more_partitions_of_an_input_are_refused_at_start(past):
    """Both counts are named, before any partition is touched."""
    then = await past()
    grow(then.here.bootstrap_servers, then.input, 2)
    service = then.here.service()
    await service.start()
    try:
        with pytest.raises(Exception, match="has 1 partitions, the inputs have 2"):
            await service.wait_live(30)
        assert service.restore_status() == []
    finally:
        await service.stop()


async def test_the_same_app_id_on_other_inputs_is_refused(past):
    """Both sets of inputs are named."""
    then = await past()
    name = then.here.app.app_id
    other = apps.pair(name)
    await then.here.cluster.create_topics(
        [NewTopic(topic.name, 1) for topic in (*other.inputs, *other.outputs)]
    )
    status = await then.here.failure(other)
    assert status.error.kind == "WrongLog"
    assert f"'payments-{name}', now it is 'left-{name}, right-{name}'" in status.error.message
    assert "another app id" in status.error.hint
