"""A change of the inputs that stopped between two partitions."""

import pytest

from snapreplay.service.decisions.inputs import Wish, carry_out, propose
from tests.support.rewired import Story, folded
from tests.support.stage import phase


@pytest.fixture
async def half(broker, unique):
    """The input `a` was processed, and is retired in one of two partitions."""
    story = Story(broker.bootstrap_servers, unique("half"), partitions=2)
    two, one = story.of("a", "b"), story.of("b")
    await two.prepare()
    await story.feed("a", 1, 1)
    await story.processed(two, "a")
    first, second = await propose(one.app, one.settings(), one.cluster, Wish())
    await carry_out(first)
    return story, two, one, second


@pytest.mark.parametrize("way", ["on", pytest.param("back", marks=pytest.mark.whole)])
async def test_a_retirement_that_stopped_half_way_leads_on_and_back(half, way):
    """One of two partitions is changed. The new version is refused, the one before has that partition FAILED; the
    command with the code of either goes its way."""
    story, two, one, _ = half
    await story.refused(one)
    async with two.started() as service:
        error = (await phase(service, "failed", 0)).error
        assert (error.kind, "`snapreplay inputs" in error.hint) == ("WrongLog", True)
        await phase(service, "live", 1)
    (done,) = await (story.change(one) if way == "on" else story.change(two, "resume"))
    assert set(done.increment.positions) == {f"{each}-{story.name}" for each in ("ab" if way == "back" else "b")}
    chosen, topic = (one, "b") if way == "on" else (two, "a")
    await story.feed(topic, 2, 1)
    assert await story.processed(chosen, topic) == folded((1, 2))
