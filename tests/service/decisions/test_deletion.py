"""The deletion of an app on a real broker: what goes, what stays, and who keeps it from going."""

import pytest

from snapreplay.app import names
from snapreplay.errors import StopError
from snapreplay.service.decisions import savepoints
from snapreplay.service.decisions.deletion import NoSuchApp, NotOurs, StillRuns, carry_out, propose
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, tampering
from tests.support.stage import Stage


async def with_a_past(stage, name):
    """An app with dead letters that has run, has a savepoint, and was stopped."""
    here = await stage(apps.ledger(name), errors={"policy": "dead_letter"})
    async with here.running() as service:
        await here.process(service, 20)
    await savepoints.create(here.app, here.settings(), here.cluster, "before")
    return here


def there(here):
    """The topics of this app that exist, by what follows its id."""
    found = tampering.topics(here.bootstrap_servers)
    return {name.removeprefix(f"{here.app.app_id}-") for name in found if name.startswith(f"{here.app.app_id}-")}


SAVED = {"savepoint-before-increments", "savepoint-before-snapshots"}


async def witness(here):
    group = names.witness_group(here.app.app_id)
    return await here.cluster.committed_offsets(group, [TopicPartition(here.increments, 0)])


async def test_its_topics_and_groups_go_and_what_others_may_need_stays(stage, unique):
    """Dead letters and savepoints only go if they are named. Inputs and outputs never do. What is left of the app is
    enough to begin again with the savepoint."""
    here = await with_a_past(stage, unique("ledger"))
    assert await witness(here)
    deletion = await propose(here.app.app_id, here.cluster)
    assert set(deletion.topics) == {here.increments, here.snapshots}
    assert set(deletion.kept) == {here.dead_letters, *(f"{here.app.app_id}-{each}" for each in SAVED)}
    assert there(here) == {"increments", "snapshots", "dead-letters", *SAVED}
    await carry_out(deletion, here.cluster)
    assert there(here) == {"dead-letters", *SAVED}
    assert {here.input, here.output} <= tampering.topics(here.bootstrap_servers)
    assert await witness(here) == {}
    heir = Stage(here.bootstrap_servers, apps.heir(here.app, f"{here.app.app_id}-2"))
    await ensure_topics(heir.app, heir.settings(), heir.cluster)
    source = names.savepoint_id(here.app.app_id, "before")
    await init_with_state(heir.app, heir.settings(), heir.cluster, source, "positions")
    with pytest.raises(NoSuchApp, match="only these topics of it exist:") as nothing_left:
        await propose(here.app.app_id, here.cluster)
    assert "`--dead-letters` and `--savepoints`" in nothing_left.value.hint
    await carry_out(await propose(here.app.app_id, here.cluster, dead_letters=True, savepoints=True), here.cluster)
    assert there(here) == {"2-increments", "2-snapshots"}


async def test_nothing_goes_while_a_process_is_in_the_group(stage, unique):
    """Neither before it is confirmed nor after it: a process that has joined meanwhile keeps everything."""
    here = await with_a_past(stage, unique("ledger"))
    deletion = await propose(here.app.app_id, here.cluster)
    async with here.running() as service:
        with pytest.raises(StillRuns, match="its group has 1 member"):
            await propose(here.app.app_id, here.cluster)
        with pytest.raises(StillRuns, match="has members"):
            await carry_out(deletion, here.cluster)
        await here.feed(5)
        await here.assert_exactly_once(service)
    await here.restored()


async def test_a_deletion_that_was_interrupted_is_repeated(stage, unique, monkeypatch):
    """The groups are gone, and one of the topics."""
    here = await with_a_past(stage, unique("ledger"))
    cluster = here.cluster
    deletion = await propose(here.app.app_id, cluster)

    async def killed(topics):
        await type(cluster).delete_topics(cluster, topics[:1])
        raise StopError("killed")

    monkeypatch.setattr(cluster, "delete_topics", killed)
    with pytest.raises(StopError, match="killed"):
        await carry_out(deletion, cluster)
    rest = await propose(here.app.app_id, here.cluster)
    assert rest.topics == (here.snapshots,)
    await carry_out(rest, here.cluster)
    await carry_out(deletion, here.cluster)
    assert there(here) == {"dead-letters", *SAVED}


async def test_records_of_somebody_else_are_not_deleted(broker, unique):
    """A topic may have such a name by chance. One without records, or with transaction markers only, is the app's."""
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("foreign")))
    tampering.create(here.bootstrap_servers, here.increments)
    assert (await propose(here.app.app_id, here.cluster)).topics == (here.increments,)
    tampering.append(here.bootstrap_servers, here.increments, b"somebody's")
    with pytest.raises(NotOurs, match="snapreplay did not write"):
        await propose(here.app.app_id, here.cluster)
