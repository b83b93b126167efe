"""The bye of a process that is slower than its group: a new generation may come before it."""

import asyncio

import psutil

from snapreplay.api import peers
from tests.api.test_peers import become, two, watching
from tests.support.served import LATE, Program, control_of, peer, served
from tests.support.waiting import eventually

__all__ = ["two"]


async def test_a_bye_is_heard_after_the_group_has_gone_on(two: Program):
    """It is followed until its stream ends, and suspected by nobody."""
    one = control_of("p1", two.peer)
    async with watching(one, LATE) as shown:
        await become(shown, "reachable")
        one.peers = ()
        await become(shown)
        await asyncio.to_thread(two.end)
        await asyncio.to_thread(eventually, lambda: one.ended_peers == ["p2"], "its bye")
    assert one.suspected == []


async def test_who_has_left_gives_way_to_a_member(two: Program, monkeypatch):
    """It may run on for hours without its group, and each connection takes a file."""
    monkeypatch.setattr(peers, "connections_max", lambda: 1)
    one = control_of("p1", two.peer)
    async with served(control_of("p3"), LATE) as url, watching(one, LATE) as shown:
        await become(shown, "reachable")
        one.peers = (peer("p3", url),)
        await become(shown, "reachable")
        ports = {each.raddr.port for each in psutil.Process().net_connections("tcp") if each.raddr}
        assert two.port not in ports
