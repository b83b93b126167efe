"""A runner that was stopped while its state is in no log: what it waits for, without a cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

from snapreplay.service.core.stops import DuplicateInstance
from snapreplay.service.partition.memory import OTHERS_SECONDS
from snapreplay.service.partition.recoverer import Superseded
from snapreplay.service.partition.runner import PartitionRunner


def holding():
    """A runner that was stopped while its state is in no log, without a cluster; what it calls is noted."""
    calls: list[object] = []
    runner: Any = object.__new__(PartitionRunner)

    async def noted(*given):
        calls.append(given)

    runner._holding, runner._refused, runner._live, runner._left = True, None, None, False
    runner._interrupted, runner._stop = asyncio.Event(), asyncio.Event()
    runner._stop.set()
    runner._taken_back = asyncio.Event()
    runner._context = SimpleNamespace(partition=0, metrics=SimpleNamespace(fenced=lambda: None))
    runner._reporter = MagicMock()
    runner._retry = MagicMock()
    runner._stand_back = MagicMock(until_assigned=noted)
    runner._memory = MagicMock(
        until_proven=noted, forget_if_proven=noted, is_to_be_written=AsyncMock(return_value=True)
    )
    runner._on_failed = lambda _: None
    return runner, calls


async def test_who_holds_a_state_waits_for_a_newer_owner_only_so_long():
    """It may wait for us."""
    runner, calls = holding()
    await runner._fenced(Superseded(MagicMock(host="h", pid=2, instance_id="two"), 0))
    assert calls[-1] == (OTHERS_SECONDS,)


async def test_a_refusal_does_not_interrupt_what_is_held():
    """Else each next attempt to write it ended before it began."""
    runner, calls = holding()
    await runner._stand_aside(DuplicateInstance("another one"))
    assert (runner._refused, runner._interrupted.is_set()) == (None, False)
    assert calls[-1] == (OTHERS_SECONDS,)
    runner.refuse(DuplicateInstance("another one"))
    assert runner._interrupted.is_set()
    begun = []

    async def incarnation():
        begun.append(runner._interrupted.is_set())

    runner._incarnation = incarnation
    await runner._hold()
    assert begun == [False]


async def test_what_was_found_of_an_earlier_incarnation_ends_none():
    """It was told when that one had ended already."""
    runner, _ = holding()
    runner._found, runner._stop_at, runner._refusals = ValueError("old"), None, MagicMock()
    runner._refusals.caution.times = 0
    runner._memory.take = lambda: (None, None)
    runner._recovered = AsyncMock()
    runner._new_topics_seen = runner._standstill = runner._values = MagicMock()
    runner._standstill.left_live = runner._values.end = AsyncMock()
    found = []

    async def process(*_):
        found.append(runner._found)

    runner._process = process
    with patch("snapreplay.service.partition.incarnation.Live") as live:
        live.return_value.close = AsyncMock()
        await runner._recover_and_process()
    assert found == [None]
