"""A state that is only in the memory of a process: whoever might stop that is told."""

import asyncio

import pytest

from tests.support import inside
from tests.support.in_memory import virtual


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
