"""docs/backup.md: a state that another app id keeps, on a real broker. Copies of the topics are attack B21."""

from __future__ import annotations

import asyncio

import pytest

from snapreplay.app.names import increments_topic, snapshots_topic
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference, tampering
from tests.support.stage import Stage, processed

pytestmark = pytest.mark.kafka


async def test_a_state_that_another_app_id_keeps_comes_back(broker, unique):
    """Both own topics of the app are gone: the app that took its state over gives it to a third one. What was processed
    since then is processed again."""
    name = unique("ledger")
    stage = await Stage(broker.bootstrap_servers, apps.ledger(name)).prepare()
    async with stage.running() as service:
        await stage.feed(30)
        await processed(service, {0: 30})
    kept = await taken_over(stage, f"{name}-backup", name)
    async with stage.running() as service:
        await stage.feed(10)
        await processed(service, {0: 40})
        expected = reference.as_plain(service.view(0))
    own = (increments_topic(name), snapshots_topic(name))
    await asyncio.to_thread(tampering.delete, broker.bootstrap_servers, *own)
    heir = await taken_over(stage, f"{name}-2", kept.app.app_id)
    async with heir.running() as service:
        await processed(service, {0: 40})
        assert reference.as_plain(service.view(0)) == expected
    (outputs,) = await stage.read(stage.app.outputs[0].name)
    assert len(outputs) == 50


async def taken_over(stage: Stage, name: str, source: str) -> Stage:
    """Take over as `topics ensure` and `init --state-of` do for another app id on the same topics."""
    heir = Stage(stage.bootstrap_servers, apps.heir(stage.app, name))
    await ensure_topics(heir.app, heir.settings(), heir.cluster)
    await init_with_state(heir.app, heir.settings(), heir.cluster, source, "positions")
    return heir
