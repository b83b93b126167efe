"""The watch itself; what it sees and does about it is in tests/attacks/test_b4_retention.py."""

import asyncio

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live import recoverability_monitor as module
from snapreplay.service.live.fetcher import Fetcher
from tests.simulation.cluster import SimCluster
from tests.support.in_memory import virtual
from tests.support.stage import until


@virtual
async def test_it_is_looked_at_once_a_minute(bench, monkeypatch):
    """The first look comes within a minute; batches make none. Nobody reads a `recoverable` when it has ended."""
    made, reader = [], SimCluster.reader

    async def counted(self, **options):
        made.append(asyncio.get_running_loop().time())
        return await reader(self, **options)

    async with bench.live() as one:
        monkeypatch.setattr(SimCluster, "reader", counted)
        for _ in range(5):
            await bench.feed(10)
            await one.position(bench.sent)
        assert made == []
        assert one.status.recoverable is None
        await asyncio.sleep(module.WATCH_SECONDS)
        assert one.status.recoverable is True
        looks = len(made)
        await asyncio.sleep(module.WATCH_SECONDS)
        assert len(made) == 2 * looks
    assert one.status.recoverable is None
    watches = [t for t in asyncio.all_tasks() if "RecoverabilityMonitor" in repr(t.get_coro())]
    assert watches == []


@virtual
async def test_a_lag_is_shown_although_nothing_is_fetched(bench, monkeypatch):
    """While handlers are busy with what was fetched long ago, each look asks where the inputs end."""
    busy = []

    async def nothing(*_):
        busy.append(1)
        await asyncio.sleep(1)
        return ()

    async with bench.live() as one:
        await bench.feed(10)
        await one.position(10)
        monkeypatch.setattr(Fetcher, "next_batch", nothing)
        await until(lambda: busy, "the end of the last fetch")
        await bench.feed(30)
        await until(lambda: one.status.inputs[0].lag == 30, "the lag", 2 * module.WATCH_SECONDS)
        assert one.status.inputs[0].lag_to_high_watermark == 30


@virtual
async def test_a_look_that_fails_is_only_a_warning(bench, monkeypatch, caplog):
    """Processing goes on, what is known stays, and the next look is tried."""

    async def nobody(*_, **__):
        raise Unreachable("no broker")

    async with bench.live() as one:
        await until(lambda: one.status.recoverable, "looked at", module.WATCH_SECONDS)
        with monkeypatch.context() as down:
            down.setattr(SimCluster, "reader", nobody)
            await asyncio.sleep(2 * module.WATCH_SECONDS)
        assert caplog.text.count("cannot check whether it is recoverable: no broker") == 2
        assert one.status.recoverable is True
        await bench.feed(10)
        await bench.assert_exactly_once(one)
