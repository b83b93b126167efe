"""Attack B6: a process cut off from the group's coordinator, and from nothing else, believes that its partition is
still its own, and fences the new owner in return, for ever."""

import asyncio

import pytest

from snapreplay.service.partition import lifecycle
from tests.support import apps
from tests.support.stage import phase, until
from tests.support.wire import Proxy

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 11, 12, 13, 14, 15
OF_THE_GROUP = {JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS}


@pytest.mark.whole
@pytest.mark.parametrize("answered", [False, True])
async def test_b6_who_was_expelled_unheard_takes_nothing_back(stage, unique, children, broker, monkeypatch, answered):
    """Its heartbeats do not arrive, another process owns the partition and works. The first one is fenced,
    finds the other's claim, asks the coordinator again and again (without an answer, or with one that names the
    other), and leaves it alone. Once the cut is healed and the other one gone, it has the partition again; every
    record counted once."""
    lost = OF_THE_GROUP - ({DESCRIBE_GROUPS} if answered else set())
    monkeypatch.setattr(lifecycle, "fenced_pause_seconds", lambda *_: 0.3)
    here = await stage(apps.ledger(unique("b6")))
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.through(), here.running(instance_id="cut") as cut:
        await here.process(cut, 10)
        proxy.fault = lambda api_key: "reset before" if api_key in lost else "pass"
        other = children.start("ledger", here.app.app_id, instance_id="other")
        await asyncio.to_thread(other.wait_live)
        epoch = other.partitions()[0]["owner_epoch"]
        assert cut.restore_status()[0].phase == "live", "it has not heard of it"

        await here.feed(20)
        status = await phase(cut, "fenced")
        assert str(other.pid) in status.error.message
        asked = proxy.seen.get(DESCRIBE_GROUPS, 0)
        await until(lambda: proxy.seen.get(DESCRIBE_GROUPS, 0) >= asked + 5, "asked five times")
        await here.feed(20)
        await until(lambda: other.processed() == 50, "the other one's work")
        assert other.partitions()[0]["owner_epoch"] == epoch, "no process fenced it"
        assert cut.restore_status()[0].phase == "fenced"

        proxy.fault = lambda _: "pass"
        assert await asyncio.to_thread(other.terminate) == 0
        await phase(cut, "live")
        await here.feed(10)
        await here.assert_exactly_once(cut)
