"""The loop that performs what the core asks for."""

import pytest

from snapreplay.errors import RetryableError
from snapreplay.service.core import effects, events
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.recovery.attempt import attempt
from tests.docs.recoveries import US

BEGINNING = Recovery(US, RestoreMode.CHANGES)


async def test_what_cannot_be_performed_is_an_event_and_ends_in_what_the_core_says():
    """Every step is seen, the last one, too."""
    seen = []

    async def perform(effect):
        if isinstance(effect, effects.Fence):
            return events.FenceDone()
        raise RetryableError("no broker")

    recovery, end = await attempt(BEGINNING, perform, lambda *each: seen.append(each))
    assert isinstance(end, effects.Wait)
    assert end.error.message == "no broker"
    assert [type(event) for _, event in seen] == [
        events.Begin,
        events.FenceDone,
        events.EffectFailed,
    ]
    assert seen[-1][0] is recovery
    again, _ = await attempt(recovery, perform, lambda *_: None)
    assert (recovery.attempt, again.attempt) == (1, 2)


async def test_whom_the_group_does_not_give_the_partition_is_not_asked_again_here():
    """Nobody knows for how long."""

    async def perform(_):
        raise NotAssigned("it is another's")

    with pytest.raises(NotAssigned):
        await attempt(BEGINNING, perform, lambda *_: None)
