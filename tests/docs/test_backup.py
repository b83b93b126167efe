"""docs/operators.md: what a savepoint brings back, on a real broker. Copies of the topics are attack B21."""

import asyncio

import pytest

from snapreplay.app.names import own_pair, savepoint_id
from snapreplay.service.decisions import savepoints
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference, tampering
from tests.support.stage import Stage, processed


@pytest.mark.whole
async def test_a_savepoint_brings_a_lost_app_back(broker, unique):
    """Both own topics of the app are gone: another app id begins with its savepoint. What was processed since then is
    processed again."""
    name = unique("ledger")
    stage = await Stage(broker.bootstrap_servers, apps.ledger(name)).prepare()
    async with stage.running() as service:
        await stage.feed(30)
        await processed(service, {0: 30})
        await savepoints.create(stage.app, stage.settings(), stage.cluster, "before-fix")
        await stage.feed(10)
        await processed(service, {0: 40})
        expected = reference.as_plain(service.view(0))
    await asyncio.to_thread(tampering.delete, broker.bootstrap_servers, *own_pair(name))
    heir = Stage(stage.bootstrap_servers, apps.heir(stage.app, f"{name}-2"))
    await ensure_topics(heir.app, heir.settings(), heir.cluster)
    source = savepoint_id(name, "before-fix")
    await init_with_state(heir.app, heir.settings(), heir.cluster, source, "positions")
    async with heir.running() as service:
        await processed(service, {0: 40})
        assert reference.as_plain(service.view(0)) == expected
    (outputs,) = await stage.read(stage.app.outputs[0].name)
    assert len(outputs) == 50
