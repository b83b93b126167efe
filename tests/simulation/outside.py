"""The outside that apps call: it answers late, fails, or the process dies meanwhile; and what must be true of each
attempt."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

from snapreplay.app.call import Call, CallRefused
from tests.simulation import program

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

CRASHES_MAX = 2
"""Also after the other faults have ended: most calls are made then."""
LATE_SECONDS = 2.0  # more than the call's timeout


class Outside:
    """One service that all processes call. What happens to an attempt follows from the call and its number."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._attempts: Counter[str] = Counter()
        self._crashes_left = CRASHES_MAX

    async def answer(self, process: Process, call: Call[str, str]) -> str:
        """Answer after a while, or raise. The process may crash before the call, or after it."""
        network, number = self._world.network, self._attempts[call.id]
        self._attempts[call.id] += 1
        network.met("call made twice" if number else "call made")
        network.trace(process.name, f"calls {call.id}")
        if not self._is_committed(call.id):
            network.misused(f"{process.name} calls {call.id}, whose request is not committed")
        rng = random.Random(f"{call.id} {number}")
        crash = rng.choices(("", "before", "after"), (18, 1, 1))[0]
        if crash == "before":
            await self._crash(process, crash)
        seconds = rng.choices((0.0, 0.05, 0.4, LATE_SECONDS), (8, 6, 4, 1))[0]
        if seconds == LATE_SECONDS:
            network.met("call without a result in time")
        await asyncio.sleep(seconds)
        if crash == "after":
            await self._crash(process, crash)
        if rng.random() < 0.15:
            network.met("call failed")
            raise ConnectionError("no answer from the outside")
        if int(call.request) % 8 == 0:
            network.met("call refused")
            raise CallRefused(call.request)
        return program.answer_to(call.request, is_bad=self._world.scenario.poison > 0)

    async def _crash(self, process: Process, when: str) -> None:
        world = self._world
        is_over = world.epilogue or world.ending or world.network.faults.owners_spared
        if self._crashes_left and not is_over and not process.dead:
            self._crashes_left -= 1
            world.network.met(f"crash {when} a call")
            process.crash()
            await asyncio.sleep(0)  # it is cancelled here

    def _is_committed(self, call_id: str) -> bool:
        """Say whether the output of the record that has requested a call is committed, and so the request. The id of
        a timer's call does not say which time it was."""
        source = call_id.split("/")[1]
        if source.startswith(f"{program.RING}-"):
            return True
        topic, partition, offset = source.rsplit("-", 2)
        outputs = self._world.broker.log(program.OUTPUT, int(partition))
        of_record = f"|{topic}|{offset}|".encode()
        return any(of_record in (each.record.value or b"") for each in outputs.ever())
