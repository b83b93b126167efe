"""Changes of the inputs by command: the last input is retired and added, again and again, while its app runs.

The producer of an input stops before it is retired, unless records may be left. A command that was refused, or killed
between two partitions, is repeated until every partition is changed; then the version with these inputs is deployed.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from snapreplay.errors import SnapreplayError
from snapreplay.service.decisions import inputs as product
from snapreplay.snapshots.format.records import Claim, Increment
from tests.simulation import program, told
from tests.simulation.history import require
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMANDS = ("inputs once", "inputs twice", "inputs killed")
AGAIN_SECONDS = 0.3
KILLED_SECONDS = 0.25
"""Virtual: within this all partitions are changed, unless something else happens."""
EXCHANGED_SECONDS = 0.5
"""Virtual: then all processes are of the new version, or are being started."""
CHANGED_SECONDS = 150.0
"""Virtual: in a healed cluster a change ends by then."""
TRY_AGAIN = (
    *("Unreachable", "ReadStalled", "CommitInDoubt", "Fenced", "Superseded", "LogWentOn", "killed"),
    *("NotDrained", "NotRetirable"),
    *(
        "OffsetTrimmed",
        "OffsetBeyondEnd",
        "NotInitialised",
        "UsageError",
        "HangingTransaction",
    ),  # as a broker shows it that lags behind, or a pinned log
)


def draw_commands(rng: random.Random) -> list[str]:
    return [rng.choice(COMMANDS) for _ in range(rng.choice((1, 2, 3, 5)))]


@dataclass(frozen=True)
class Wish:
    """The wish of an operator: to add the input, or to retire it. `start`: of an added one. `lagged`: a former leader
    that has not noticed may have shown an earlier end meanwhile, and it cannot be told apart."""

    start: str = ""
    leave_records: bool = False
    lagged: bool = False


class Rewiring:
    """The changes of a history.

    Attributes:
        declared: the inputs of the newest version.
        tried: reason → the wish.
        starts: where an input may be taken in again.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        drawn = world.scenario
        self.declared = program.INPUTS[: drawn.inputs if drawn.inputs_at_first is None else drawn.inputs_at_first]
        self.tried: dict[str, Wish] = {}
        self.starts: tuple[str, ...] = ("earliest", "latest", "resume")
        self._was_retired = False
        self._running: asyncio.Task[None] | None = None

    def change(self, how: str, _: float) -> bool:
        """Begin to retire the last input or, where it is none, to add it."""
        world = self._world
        if world.scenario.inputs_at_first is None or (self._running and not self._running.done()):
            return False
        self._running = world.loop.create_task(self._change(how), context=NOWHERE)
        return True

    async def settle(self) -> None:
        """Wait for the change under way. Raises Violation: it does not end."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=CHANGED_SECONDS)
            require(self._running.done(), f"a change of the inputs did not end in {CHANGED_SECONDS} s")
            self._running.result()
            await asyncio.sleep(EXCHANGED_SECONDS)

    def refuses(self, process: Process, number: int, kind: str) -> bool:
        """Say whether a version with other inputs than the log has is refused, as it must be.

        A process that stalls decides by the log as it was when it claimed. A change since then has fenced it.
        """
        if kind != "WrongLog":
            return False
        log = self._world.broker.log(program.INCREMENTS, number)
        claims = (
            offset
            for offset, claim in told.newest(log, Claim, log.stable)
            if claim.process_id == process.identity.process_id
        )
        lasts = (self._last(number, before_offset) for before_offset in (None, next(claims, None)))
        return any(each is not None and each.positions.keys() != {*process.app.input_names} for each in lasts)

    async def _change(self, how: str) -> None:
        world, topic, wish = self._world, program.INPUTS[-1], self._draw()
        after = program.INPUTS[:-1] if topic in self.declared else program.INPUTS
        if not wish.start and not wish.leave_records:
            world.feeder.end(topic)
        said = await self._carried_out(after, wish, how)
        while "made" not in said or not self._is_done(after):
            if "NotRetirable" in said:
                self._ask_for_snapshots()
            if "NotDrained" in said or "NotRetirable" in said:
                await self._take_in_again()
            await asyncio.sleep(AGAIN_SECONDS)
            said = await self._carried_out(after, wish, "once")
        self.declared, self._was_retired = after, self._was_retired or not wish.start
        if wish.start:
            world.feeder.begin(topic, at_once=world.healing)
        else:
            world.feeder.end(topic)
        for process in list(world.processes):
            world.loop.call_later(world.rng.random() * EXCHANGED_SECONDS, self._exchange, process)

    async def _take_in_again(self) -> None:
        """Let the version before continue, where a partition is without the input already."""
        if any(self._is_without(number, program.INPUTS[-1]) for number in range(self._world.scenario.partitions)):
            await self._carried_out(self.declared, Wish("resume"), "once")
            for process in self._world.processes:
                self._exchange(process)

    def _is_without(self, number: int, topic: str) -> bool:
        last = self._last(number)
        return last is not None and topic not in last.positions

    def _is_done(self, after: tuple[str, ...]) -> bool:
        """Say whether each partition has these inputs. A broker that lags behind may have shown that, and it is not
        so."""
        found = (self._last(number) for number in range(self._world.scenario.partitions))
        wanted = {*after, *self._world.internal}
        return all(each is not None and each.positions.keys() == wanted for each in found)

    def _last(self, number: int, before_offset: int | None = None) -> Increment | None:
        log = self._world.broker.log(program.INCREMENTS, number)
        below = log.stable if before_offset is None else before_offset
        return next((each for _, each in told.newest(log, Increment, below)), None)

    def _draw(self) -> Wish:
        rng, adds = self._world.rng, program.INPUTS[-1] not in self.declared
        if not adds:
            return Wish(leave_records=rng.random() < 0.3)
        return Wish(rng.choice(self.starts if self._was_retired else ("earliest", "latest")))

    def _exchange(self, process: Process) -> None:
        """Crash it: it is started again, as the version of then. One that was refused in between is of this version
        already: it looks again."""
        if process not in self._world.processes:
            return
        if process.app.input_names != (*self.declared, *(n for n in self._world.internal if "/" not in n)):
            process.crash()
            self._world.copies.count_again()
            return
        for status in process.board.all():
            if status.error is not None and status.error.kind == "WrongLog":
                process.soon(process.retry, status.partition)

    def _ask_for_snapshots(self) -> None:
        for process in self._world.processes:
            for runner in process.supervisor.runners.values() if process.supervisor else ():
                process.soon(runner.request_snapshot, "trigger", lambda *_: None)

    async def _carried_out(self, after: tuple[str, ...], wish: Wish, how: str) -> list[str]:
        clients = [self._client(after) for _ in range(2 if how == "twice" else 1)]
        if how == "killed":
            self._world.loop.call_later(KILLED_SECONDS * self._world.rng.random(), clients[0].crash)
        return await asyncio.gather(*(self._ended(each, wish) for each in clients))

    def _client(self, after: tuple[str, ...]) -> Process:
        world, name = self._world, f"inputs.{len(self.tried)}"
        app = world.deployed(inputs=after)
        return Process(world, name, app, world.scenario.settings("inputs"), 5000)

    async def _ended(self, client: Process, wish: Wish) -> str:
        """Return what came of it: "made", an error, or "killed"."""
        reason = f"{client.name}.{len(self.tried)} at {self._world.loop.time():.3f}"
        self.tried[reason] = replace(wish, lagged=self._lags())
        work = client.spawn(_changed(client, product.Wish(wish.start, (), wish.leave_records, reason)))
        await asyncio.wait([work])
        self.tried[reason] = replace(wish, lagged=self.tried[reason].lagged or self._lags())
        error = None if work.cancelled() else work.exception()
        said = "killed" if work.cancelled() else "made" if error is None else type(error).__name__
        self._world.network.trace(client.name, f"{wish}: {said} {error or ''}")
        self._world.network.met(f"inputs: {said}")
        if said not in ("made", *TRY_AGAIN):
            what = f"{error}" if isinstance(error, SnapreplayError) else repr(error)
            self._world.network.misused(f"{client.name}: {said}: {what}")
        return said

    def _lags(self) -> bool:
        return any(place.topic == program.INPUTS[-1] for place in self._world.broker.stale)


async def _changed(client: Process, wish: product.Wish) -> None:
    for each in await product.propose(client.app, client.settings, client.cluster, wish):
        if each.change:
            await product.carry_out(each)
