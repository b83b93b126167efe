"""A change of the inputs that stopped between two partitions."""

import pytest

from snapreplay.service.decisions.inputs import NotDrained, NotRetirable, Wish, carry_out, propose
from snapreplay.service.ports import NewTopic
from tests.support.rewired import Story, folded
from tests.support.stage import phase, until

pytestmark = pytest.mark.kafka


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


@pytest.mark.parametrize("way", ["on", "back"])
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


async def test_records_that_came_between_two_retirements_are_processed(half):
    """Neither version does that as it is: the hint leads back, and from there on. The command that is still under way
    has looked at one partition only, and leads to that hint."""
    story, two, one, second = half
    await story.feed("a", 2, 1)
    with pytest.raises(NotDrained) as refused:
        await carry_out(second)
    assert refused.value.hint.startswith("run the command again")
    with pytest.raises(NotDrained) as refused:
        await story.change(one)
    assert "partition 0 is without this input already" in refused.value.hint
    assert "with the previous version, `snapreplay inputs MODULE:APP --from resume`" in refused.value.hint
    await story.change(two, "resume")
    assert await story.processed(two, "a") == folded((1, 2))
    assert len(await story.change(one)) == 2
    await story.feed("b", 3, 1)
    assert await story.processed(one, "b") == folded((1, 3))


@pytest.mark.whole
async def test_what_only_a_replay_restores_leads_back_when_half_of_it_is_retired(broker, unique):
    """The version before has the first partition FAILED: that one has its input again before a snapshot is written."""
    story = Story(broker.bootstrap_servers, unique("half"), partitions=2, changelog={"enabled": False})
    two, one = story.of("a", "b"), story.of("b")
    await two.prepare()
    first, second = await propose(one.app, one.settings(), one.cluster, Wish())
    await carry_out(first)
    await story.feed("a", 1, 1)
    async with two.started() as service:
        await phase(service, "failed", 0)
        await phase(service, "live", 1)
        sent = len((await two.read(f"a-{story.name}"))[1])
        await until(lambda: len(service.view(1)) == sent, "one entry for each record")
    with pytest.raises(NotRetirable) as refused:
        await carry_out(second)
    assert refused.value.hint.startswith("run the command again")
    with pytest.raises(NotRetirable, match="can be restored only by a replay of a-") as refused:
        await story.change(one)
    assert "partition 0 is without this input already" in refused.value.hint
    assert "with the previous version, `snapreplay inputs MODULE:APP --from resume`" in refused.value.hint
    await story.change(two, "resume")
    assert await story.processed(two, "a") == folded((1, 1))
    async with two.running(snapshot={"before_stop": True}):
        pass
    assert len(await story.change(one)) == 2


@pytest.mark.whole
async def test_an_input_that_was_added_half_way_is_added_before_it_is_retired(broker, unique):
    """A partition that never had it has not retired it: the hint names the version before, whose own hint goes on."""
    story = Story(broker.bootstrap_servers, unique("half"), partitions=2)
    two, one = story.of("a", "b"), story.of("b")
    await one.prepare()
    await two.cluster.create_topics([NewTopic(f"a-{story.name}", 2)])
    first, _ = await propose(two.app, two.settings(), two.cluster, Wish("earliest"))
    await carry_out(first)
    await story.feed("a", 1, 1)
    with pytest.raises(NotDrained) as refused:
        await story.change(one)
    assert "let the previous version process the rest" in refused.value.hint
    assert "without this input" not in refused.value.hint
    await story.refused(two)
    await story.change(two, "earliest")
    assert await story.processed(two, "a") == folded((1, 1))
    assert len(await story.change(one)) == 2
