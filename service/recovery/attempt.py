"""One attempt of a recovery: the core says what to do, somebody does it, until the core says that it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import effects, events
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.recovery import Recovery, step

Perform = Callable[[effects.Action], Awaitable[events.Event]]
Seen = Callable[[Recovery, events.Event], None]
"""Called after every event, with what has become of the recovery."""


async def attempt(recovery: Recovery, perform: Perform, seen: Seen) -> tuple[Recovery, effects.End]:
    """Recover from the fence to what ends it. What `perform` raises is an event, too: the core says what it means.

    Raises:
        NotAssigned: nobody knows for how long.
    """
    event: events.Event = events.Begin()
    while True:
        recovery, effect = step(recovery, event)
        seen(recovery, event)
        if isinstance(effect, effects.Wait | effects.GoLive | effects.GiveWay | effects.Fail):
            return recovery, effect
        try:
            event = await perform(effect)
        except NotAssigned:
            raise
        except SnapreplayError as error:
            event = events.EffectFailed(error)
