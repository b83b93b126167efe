"""The choices of a seed beside the faults: ids, wall time, pauses of calls, and how long the steps of work take."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from snapreplay.service import clock
from snapreplay.service.core import suspicion
from snapreplay.service.live import pace, pipeline
from snapreplay.service.partition import ownership_watch, standby, takeovers
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery import follower
from snapreplay.service.runtime import circuits, cooperative, witnesses
from snapreplay.state import shards, staging
from snapreplay.state.composite import Store
from snapreplay.state.mapstore import MapStore
from snapreplay.state.shards import Shards
from tests.simulation.scenario import EPOCH_SECONDS

if TYPE_CHECKING:
    from tests.simulation.world import World

SMALL = (8,)  # shards of a map, instead of 1024: a snapshot visits each of them


@contextmanager
def slow_steps(world: World) -> Iterator[None]:
    """Leave time for something else after each step of work on a batch or a snapshot."""

    async def pause() -> None:
        await asyncio.sleep(world.rng.choice((0.0, 0.001, 0.02)))

    def counted(module: ModuleType) -> Callable[[Any], Awaitable[Any]]:
        async def in_steps(steps: Any, *read: Any) -> Any:
            world.network.met(f"{module.__name__.rpartition('.')[2]}: {steps.__name__} in steps")
            return await cooperative.run_cooperatively(steps, *read)

        return in_steps

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(cooperative, "YIELD_AFTER_SECONDS", -1))
        stack.enter_context(mock.patch.object(cooperative, "pause", pause))
        for module in (pipeline, follower, snapshot_writer):
            stack.enter_context(mock.patch.object(module, "run_cooperatively", counted(module)))
        yield


@contextmanager
def seeded(world: World) -> Iterator[None]:
    """Ids, wall time and length of the steps of a seed; small maps and patient idle loops, for speed."""
    loop = world.loop

    def seeded_uuid() -> uuid.UUID:
        return uuid.UUID(int=world.rng.getrandbits(128), version=4)

    wall = SimpleNamespace(
        time=lambda: EPOCH_SECONDS + loop.time(),
        time_ns=lambda: int((EPOCH_SECONDS + loop.time()) * 1e9),
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
        clock_gettime=lambda _: loop.time(),
    )
    with (
        mock.patch("uuid.uuid4", seeded_uuid),
        mock.patch.object(clock, "time", wall),
        mock.patch.object(circuits, "random", world.rng),
        mock.patch.object(pace, "IDLE_POLL_MS", 400),
        mock.patch.object(pipeline, "POLLED_RECORDS", 2),
        mock.patch.object(Shards.__init__, "__defaults__", SMALL),
        mock.patch.object(MapStore.clear, "__defaults__", SMALL),
        mock.patch.object(Store.clear, "__defaults__", SMALL),
        mock.patch.object(shards, "BLOCK", 1),
        mock.patch.object(staging, "BLOCK", 1),
        mock.patch.object(witnesses, "WRITE_SECONDS", 0.5 if world.scenario.losses else 5.0),
        mock.patch.object(standby, "LOOK_SECONDS", 0.1),
        mock.patch.object(ownership_watch, "LOOK_SECONDS", 0.5),
        mock.patch.object(ownership_watch, "READ_EVERY_LOOKS", 1),
        mock.patch.object(standby, "REJOIN_SECONDS", 1.0),
        mock.patch.object(takeovers, "QUIET_SECONDS", 0.5),
        mock.patch.object(suspicion, "PAUSE_SECONDS_MIN", 2.0),
        slow_steps(world) if world.scenario.slow_steps else nullcontext(),
    ):
        yield
