"""A runner whose partition was released: until it has ended, on a real broker."""

import asyncio

import pytest

from tests.support import apps
from tests.support.owner import Owner
from tests.support.stage import until

pytestmark = pytest.mark.kafka


@pytest.fixture
async def owner(stage, unique):
    """LIVE."""
    here = await stage(apps.ledger(unique("released")))
    made = Owner(here, await here.context())
    await made.phase("live")
    yield made
    await made.end()


async def test_a_partition_that_comes_back_before_its_runner_has_ended_is_taken_back(owner):
    """It goes on from memory, in the same task. After the end nothing can be taken back."""
    await owner.here.feed(10)
    await owner.position(10)
    owner.runner.stop(final_snapshot=False)
    assert owner.runner.take_back()
    await owner.here.feed(10)
    await owner.position(20)
    await until(lambda: owner.status.restore.warm, "it goes on from memory")
    await owner.end()
    assert not owner.runner.take_back()


async def test_who_asks_the_log_after_a_fence_ends_when_it_is_stopped(owner, monkeypatch):
    """The question may wait for minutes, for a leader that is not there."""
    asked = asyncio.Event()

    async def never(*_):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("snapreplay.service.partition.runner.newer_owner", never)
    await (await owner.context.cluster.fence(owner.context.transactional_id)).discard()
    await owner.here.feed(1)
    await asyncio.wait_for(asked.wait(), 30)
    await owner.end()
