"""The bye of a process that is slower than its group: a new generation may come before it."""

import asyncio

from tests.api.test_peers import become, two, watching
from tests.support.deadlines import eventually
from tests.support.served import LATE, Program, control_of

__all__ = ["two"]


async def test_a_bye_is_heard_after_the_group_has_gone_on(two: Program):
    """The HTTP process says it, which may stand still while its service leaves the group. It is followed until its
    stream ends, and suspected by nobody."""
    one = control_of("p1", two.peer)
    async with watching(one, LATE) as shown:
        await become(shown, "reachable")
        one.peers = ()
        await become(shown)
        await asyncio.to_thread(two.end)
        await asyncio.to_thread(eventually, lambda: one.ended_peers == ["p2"], "its bye")
    assert one.suspected == []
