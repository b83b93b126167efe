"""Savepoints on a real broker: kept beside a running app, whole or not usable, and another app begins with one."""

import asyncio

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app import names
from snapreplay.errors import StopError, UsageError
from snapreplay.service.decisions import reset, savepoints
from snapreplay.service.decisions.init import init_app, init_with_state
from snapreplay.service.decisions.reset import ResetTarget
from snapreplay.service.decisions.savepoints import NoSuchSavepoint, SavepointExists, SavepointUnusable
from snapreplay.service.decisions.state_import import CannotTakeOver, named
from snapreplay.service.preflight import OwnTopicsMissing
from snapreplay.service.publish import state as publishing
from snapreplay.service.publish.owned import commit_increment
from snapreplay.service.publish.state import publish
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.service.topics.savepoint_names import names_of
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import NO_REASON
from tests.support import apps, reference, tampering
from tests.support.stage import Stage, until

pytestmark = pytest.mark.kafka


async def create(here, name="before", reason=""):
    return await savepoints.create(here.app, here.settings(), here.cluster, name, reason)


async def find(here, name="before", *, prove=False):
    return await savepoints.find(here.app.app_id, name, here.cluster, prove=prove)


async def heir_of(here, name="before", *, state_is_lost=False, **options):
    """Another app id on the same topics, begun with the savepoint."""
    heir = Stage(here.bootstrap_servers, apps.heir(here.app, f"{here.app.app_id}-2", **options), here.partitions)
    await ensure_topics(heir.app, heir.settings(), heir.cluster)
    source = names.savepoint_id(here.app.app_id, name)
    await init_with_state(heir.app, heir.settings(), heir.cluster, source, "positions", state_is_lost=state_is_lost)
    return heir


def log_starts(here):
    return [tampering.log_start(here.bootstrap_servers, here.increments, number) for number in range(here.partitions)]


def kept(here, name="before"):
    """Its topics, as a stage of which only the topics are used."""
    return Stage(here.bootstrap_servers, named(here.app, names.savepoint_id(here.app.app_id, name)), here.partitions)


async def only_other_topics(here):
    """Create the inputs and outputs, and nothing else."""
    await ensure_topics(here.app, here.settings(), here.cluster, create_io_partitions=1)
    await here.cluster.delete_topics(names.own_pair(here.app.app_id))


async def fed(stage, name, partitions=1, count=30):
    """An app that has processed records and was stopped."""
    here = await stage(apps.ledger(name), partitions)
    async with here.running() as service:
        await here.process(service, count)
    return here


async def test_it_outlives_trimming_and_another_app_begins_with_it(stage, unique):
    """Kept while the app runs, which does not notice. The app's own topics lose the state of that moment; the other app
    continues from it, and comes to what the first one has come to. Nothing counts twice."""
    here = await stage(apps.ledger(unique("ledger")), 2, retention={"snapshots_kept": 2})
    async with here.running(records=40) as service:
        read_to = len((await here.read(here.increments))[0])
        made = await create(here, reason="before the fix")
        assert made.problems == []
        assert made.reason == "before the fix"
        assert [(part.positions, part.batch) for part in made.partitions] == [
            ({here.input: status.inputs[0].position}, status.batch) for status in service.restore_status()
        ]
        for _ in range(3):
            await here.process(service, 40)
            await service.trigger_snapshot()
        await until(lambda: log_starts(here)[0] > read_to, "the increments of the savepoint's batch are trimmed")
        assert {status.phase for status in service.restore_status()} == {"live"}
        await here.assert_exactly_once(service)
        expected = [reference.as_plain(service.view(number)) for number in (0, 1)]
    assert await names_of(here.app.app_id, here.cluster) == ["before"]
    heir = await heir_of(here)
    async with heir.running() as service:
        await heir.all_processed(service)
        assert [reference.as_plain(service.view(number)) for number in (0, 1)] == expected


async def test_a_state_that_only_a_replay_leads_to_is_kept_as_well(stage, unique):
    """Without recorded changes the handlers run again, as in a recovery. The app is the same."""
    here = await stage(apps.ledger(unique("ledger")), changelog={"enabled": False})
    async with here.running(records=10) as service:
        await service.trigger_snapshot()
        await here.process(service, 20)
        await here.decided()
        made = await create(here)
    assert made.partitions[0].positions == {here.input: 30}
    assert (await find(here, prove=True)).problems == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a\n", "x" * 200])
async def test_a_name_that_is_no_topic_name_is_refused(broker, name):
    """Before the cluster is asked anything, with what may be used."""
    here = Stage(broker.bootstrap_servers, apps.ledger("never-made"))
    with pytest.raises(UsageError, match="cannot be part of a topic name") as refused:
        await create(here, name)
    assert "letters, digits" in refused.value.hint


async def test_a_name_is_taken_until_it_is_dropped(stage, unique):
    """A second one of the name is refused and changes nothing. Dropped, its topics are gone, and the name is free."""
    here = await fed(stage, unique("ledger"))
    made = await create(here)
    assert made.reason == NO_REASON
    with pytest.raises(SavepointExists, match="has a savepoint before already"):
        await create(here)
    assert await find(here) == made
    dropped = await savepoints.drop(here.app.app_id, "before", here.cluster)
    assert set(dropped) == set(names.own_pair(kept(here).app.app_id))
    assert await names_of(here.app.app_id, here.cluster) == []
    with pytest.raises(NoSuchSavepoint, match="its savepoints: none"):
        await savepoints.drop(here.app.app_id, "before", here.cluster)
    assert (await create(here)).problems == []


@pytest.mark.parametrize(
    "where", ["between parts", pytest.param("between snapshot and increment", marks=pytest.mark.whole)]
)
async def test_an_interrupted_one_is_not_usable_and_is_dropped(stage, unique, monkeypatch, where):
    """It is listed with what is missing, and nothing begins with it. Its name is free once it was dropped."""
    here = await fed(stage, unique("two"), 2)
    calls = []

    def killed_at_the_second(function):
        async def call(*arguments, **keywords):
            calls.append(1)
            if len(calls) == 2:
                raise StopError("killed")
            return await function(*arguments, **keywords)

        return call

    if where == "between parts":
        monkeypatch.setattr(savepoints, "publish", killed_at_the_second(publish))
    else:
        monkeypatch.setattr(publishing, "commit_increment", killed_at_the_second(commit_increment))
    with pytest.raises(StopError, match="killed"):
        await create(here)
    found = await find(here)
    assert found.problems == ["partition 1: it is not saved yet: the savepoint was interrupted"]
    with pytest.raises(SavepointUnusable, match="partition 1: it is not saved yet"):
        await savepoints.usable(here.app.app_id, "before", here.cluster)
    with pytest.raises(CannotTakeOver, match="holds no increment"):
        await heir_of(here)
    with pytest.raises(SavepointExists):
        await create(here)
    await savepoints.drop(here.app.app_id, "before", here.cluster)
    assert (await create(here)).usable


@pytest.mark.whole
async def test_a_state_that_is_given_up_meanwhile_is_not_kept(stage, unique, monkeypatch):
    """The app is set back while its savepoint is made: the first of two partitions has the state of before."""
    here, keep = await fed(stage, unique("ledger"), 2), savepoints._keep

    async def kept_then_reset(context, *given):
        await keep(context, *given)
        for each in await reset.propose(here.app, here.settings(), here.cluster, ResetTarget(start="latest")):
            await reset.carry_out(each)

    monkeypatch.setattr(savepoints, "_keep", kept_then_reset)
    with pytest.raises(SavepointUnusable, match="was reset, patched or upgraded"):
        await create(here)
    assert [part.batch is None for part in (await find(here)).partitions] == [False, True]


async def test_an_app_without_a_state_has_none_to_keep(broker, unique):
    """No topics, then topics without a genesis: nothing is created for a savepoint. With a genesis, it is empty."""
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("new")))
    await only_other_topics(here)
    with pytest.raises(OwnTopicsMissing):
        await create(here)
    await ensure_topics(here.app, here.settings(), here.cluster)
    with pytest.raises(CannotTakeOver, match="holds no increment: there is no state to save") as refused:
        await create(here)
    assert await names_of(here.app.app_id, here.cluster) == []
    assert "`snapreplay init MODULE:APP`" in refused.value.hint
    await init_app(here.app, here.settings(), here.cluster)
    assert (await create(here)).partitions[0].entries == 0


async def test_a_damaged_chunk_is_found_and_nothing_begins_with_it(stage, unique):
    """One byte of the state on the disk is another one."""
    here = await fed(stage, unique("ledger"))
    await create(here)
    copy = kept(here)
    await tampering.tamper(copy, copy.snapshots, RecordKind.CHUNK, tampering.flip)
    (problem,) = (await find(here, prove=True)).problems
    assert "partition 0: " in problem
    with pytest.raises(SavepointUnusable):
        await savepoints.usable(here.app.app_id, "before", here.cluster, prove=True)
    with pytest.raises(CannotTakeOver, match="cannot be restored") as refused:
        await heir_of(here)
    assert refused.value.hint.endswith(f"`--state-of {here.app.app_id}`")


async def test_its_topics_are_as_safe_as_those_of_the_app(stage, unique):
    """Replication, minimum of replicas in sync and record size are those of the app's topics, and nothing expires."""
    here = await fed(stage, unique("ledger"))
    await asyncio.to_thread(tampering.configure, here.bootstrap_servers, here.snapshots, "max.message.bytes", "2000000")
    await create(here)
    facts = (await here.cluster.topics([kept(here).snapshots]))[kept(here).snapshots]
    assert facts.config["max.message.bytes"] == "2000000"
    assert (facts.config["retention.ms"], facts.config["cleanup.policy"]) == ("-1", "delete")


def test_no_app_can_be_declared_that_would_write_to_a_savepoint():
    """Nor may an app read or write the topics of one of its own savepoints."""
    topic = Topic("payments")
    with pytest.raises(UsageError, match="is that of a savepoint") as refused:
        App("ledger-savepoint-before", inputs=[topic], state=lambda: MapState(str, int))
    assert "--state-of ledger-savepoint-before" in refused.value.hint
    for name in ("ledger-savepoint-before-increments", "ledger-savepoint-x-snapshots"):
        with pytest.raises(UsageError, match="one of the app's own topics"):
            App("ledger", inputs=[Topic(name)], state=lambda: MapState(str, int))
    with pytest.raises(UsageError, match="one of the app's own topics"):
        App("ledger", inputs=[Topic.matching("ledger-savepoint-.*")], state=lambda: MapState(str, int))
