"""A state that is only in the memory of a process: whoever might stop that is told."""

import asyncio

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.recovery.executor import RecoveryExecutor
from tests.support import inside
from tests.support.in_memory import virtual
from tests.support.stage import until


@pytest.mark.parametrize("recoverable", [False, True])
@virtual
async def test_it_is_told_while_a_broker_that_does_not_answer_is_asked(bench, monkeypatch, recoverable):
    """The alert begins anew with each gap, and the question may wait for minutes."""
    one = await bench.owner()
    await one.phase("live")
    asked = asyncio.Event()

    async def never(*_):
        asked.set()
        await asyncio.Event().wait()

    inside.reporter(one.runner).note(recoverable=recoverable)
    monkeypatch.setattr("snapreplay.service.partition.runner.newer_owner", never)
    one.loses_answers()
    await bench.feed(1)
    await asyncio.wait_for(asked.wait(), 30)
    assert one.status.recoverable is (None if recoverable else False)


@virtual
async def test_it_is_not_told_any_more_when_the_state_of_another_owner_is_loaded(bench, monkeypatch):
    """That may take long, and the process may be stopped meanwhile."""
    pause = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
    one = await bench.owner(restore=pause)
    await one.phase("live")
    told, load = [], RecoveryExecutor.load

    async def noted(self, effect):
        told.append(one.status.recoverable)
        return await load(self, effect)

    async def lost(*_):
        raise Unreachable("no broker")

    inside.reporter(one.runner).note(recoverable=False)
    inside.poll_by(one.live, lost)
    await one.phase("fencing")
    monkeypatch.setattr(RecoveryExecutor, "load", noted)
    two = await bench.owner("two")
    await two.phase("live")
    await bench.feed(3)
    await two.position(3)
    await two.end()
    assert one.status.recoverable is False
    told.clear()
    await one.phase("live")
    assert told == [None]


@virtual
async def test_a_state_at_risk_is_looked_at_at_once_when_it_is_live_again(bench):
    """In its turn of a minute, a partition that loses its brokers more often would never be told for two minutes."""
    one, loop = await bench.owner(), asyncio.get_running_loop()
    epoch = (await one.phase("live")).owner_epoch

    async def lost(*_):
        raise Unreachable("no broker")

    inside.reporter(one.runner).note(recoverable=False)
    inside.poll_by(one.live, lost)
    await one.again_live(epoch)
    began = loop.time()
    await until(lambda: one.status.recoverable is not None, "a look")
    assert loop.time() - began < 1
