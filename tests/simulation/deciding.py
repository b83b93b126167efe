"""Decisions about a state while its app runs: newer versions that upgrade it, the older one once more, corrections.

A newer version comes to one process or to all. Any that starts later is of the newest one, and after the healing
everybody is. A correction is made by a client beside the owners, in a process of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.service.decisions import patch as product
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.correction import NotCorrected
from tests.simulation import program, told
from tests.simulation.by_time import PlainInTime
from tests.simulation.history import require
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

DECISIONS = ("upgrade one", "upgrade all", "older", "patch once", "patch twice", "patch undo", "patch killed")
"""What may be decided."""
SCHEMA_MAX = 3
TRY_AGAIN = ("Unreachable", "CommitInDoubt", "OwnerTookItBack", "ReadStalled", "LogWentOn", "killed")
KILLED_SECONDS = 0.15
"""Virtual: within this a correction is made, unless something else happens."""
AGAIN_SECONDS = (0.0, 0.0, 1.0)
"""Virtual: until the same correction is tried again. In the longer time the owner may have changed what it is about."""
PATCHED_SECONDS = 150.0
"""Virtual: a correction ends by then."""


def draw_kinds(rng: random.Random, *, changes: bool) -> list[str]:
    """Some of them. Without recorded changes only a replay by the older code leads to a state: no upgrade."""
    kinds = [rng.choice(DECISIONS) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
    return [each for each in kinds if changes or each.startswith("patch")]


@dataclass(frozen=True)
class Line:
    """One correction: the result that an entry has, and that which it should have. None: there is no entry."""

    number: int
    schema: int
    key: str
    before: int | None
    after: int | None

    def text(self, variant: dict[str, Any]) -> bytes:
        """Return the line of the file."""
        named = variant["named"]
        some = self.before if self.before is not None else self.after
        line: dict[str, Any] = {"key": self.key, "partition": self.number}
        line["store"] = program.store_of(some or 0, named=named)
        line |= {"absent": True} if self.before is None else {"expected": self._stored(self.before, variant)}
        line |= {"delete": True} if self.after is None else {"value": self._stored(self.after, variant)}
        return msgspec.json.encode(line)

    def undone(self) -> Line:
        return Line(self.number, self.schema, self.key, self.after, self.before)

    def happens(self, plain: PlainInTime) -> None:
        """Raises Violation: the state is not what the line says."""
        found = plain.results.get(self.key)
        same = (found, plain.schema) == (self.before, self.schema)
        require(same, f"{self} was carried out where there was {found} of schema {plain.schema}")
        plain.correct(self.key, self.after)

    def _stored(self, result: int, variant: dict[str, Any]) -> str:
        return program.stored(result, fat=variant["fat"], schema=self.schema)


Tried = Mapping[str, Sequence[Line]]
"""Reason → the lines of a correction."""


class Decisions:
    """The decisions of a history, and what was tried.

    Attributes:
        schema: of the newest version.
        tried: reason → the lines.
        done: partition and reason of what was reported as carried out.
        refused: reasons of what was reported as not carried out.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.schema = 1
        self.tried: dict[str, tuple[Line, ...]] = {}
        self.done: list[tuple[int, str]] = []
        self.refused: set[str] = set()
        self._running: list[asyncio.Task[None]] = []

    # ---------------------------------------------------------- versions

    def upgrade(self, how: str, seconds: float) -> bool:
        """Deploy a newer version: to one process or to all, which are killed or stopped."""
        world = self._world
        if self.schema == SCHEMA_MAX or not world.processes or world.epilogue:
            return False
        self.schema += 1
        everybody = list(world.processes)
        for process in everybody if how == "all" else [world.rng.choice(everybody)]:
            world.loop.call_later(seconds * world.rng.random() / 2, self._exchange, process)
        return True

    def older(self, _: str, seconds: float) -> bool:
        """Start an older version, in place of a process or beside all."""
        world = self._world
        if world.healing:
            return False
        if self.schema == 1 or not world.processes:
            world.loop.call_later(seconds, self.older, "", seconds)
            return self.upgrade("one", seconds)
        taken = {*world.group.members, *(each.instance_id for each in world.processes)}
        free = [name for name in "abc" if name not in taken]
        if free and world.rng.random() < 0.5:
            name = free[0]
        else:
            process = world.rng.choice(world.processes)
            process.crash()
            name = process.instance_id
        world.start(name, schema=world.rng.randrange(1, self.schema))
        return True

    def _exchange(self, process: Process) -> None:
        """Crash it: it is started again, as the version of then."""
        if process in self._world.processes and process.app.schema_version < self.schema:
            process.crash()
            self._world.copies.count_again()

    def refuses(self, process: Process, number: int, kind: str) -> bool:
        """Say whether an older version is refused, as it must be: by what the log has of a newer one."""
        if kind != "SchemaDiffers" or process.app.schema_version >= self.schema:
            return False
        log = self._world.broker.log(program.INCREMENTS, number)
        last = next((each for _, each in told.newest(log, Increment, log.stable)), None)
        lost = bool(self._world.losses.parts[number])
        return lost or (last is not None and last.origin.schema_version > process.app.schema_version)

    # ---------------------------------------------------------- corrections

    def patch(self, how: str, seconds: float) -> bool:
        """Start a client that corrects a state as it was seen last."""
        world = self._world
        if self.tried and world.rng.random() < 0.3:
            number = world.rng.randrange(world.scenario.partitions)
        else:
            number = world.views[-1].number if world.views else 0
        lines = self._draw(number)
        if not lines:
            return False
        client = self._client(lines)
        work = world.loop.create_task(self._patch(client, how, lines), context=NOWHERE)
        self._running.append(work)
        if how == "killed":
            world.loop.call_later(KILLED_SECONDS * world.rng.random(), client.crash)
        return True

    async def settle(self) -> None:
        """Wait for all clients. Raises Violation: one does not end."""
        if self._running:
            _, running = await asyncio.wait(self._running, timeout=PATCHED_SECONDS)
            require(not running, f"a correction did not end in {PATCHED_SECONDS} s")
        for each in self._running:
            if not each.cancelled():
                each.result()

    def judge(self, number: int, decided: set[str], *, lost: bool) -> None:
        """Raises Violation: what was said of a correction is not what the log has."""
        refused = decided & self.refused
        require(not refused, f"partition {number}: {refused} was refused, and made")
        missing = {reason for at, reason in self.done if at == number} - decided
        require(lost or not missing, f"partition {number}: {missing} was made, and is not in the log")

    def _client(self, lines: tuple[Line, ...]) -> Process:
        """Return one of the version that the lines are for."""
        world = self._world
        name, app = f"patch.{len(self.tried)}", world.deployed(schema=lines[0].schema)
        return Process(world, name, app, world.scenario.settings("patch"), 5000)

    def _draw(self, number: int) -> tuple[Line, ...]:
        rng = self._world.rng
        shown = [each for each in self._world.views if each.number == number]
        entries = {key: text for store in shown[-1].entries.values() for key, text in store.items()} if shown else {}
        results = {key: program.number_in(text) for key, text in sorted(entries.items())}
        keys = rng.sample(program.KEYS, rng.choice((1, 1, 2, 3)))
        lines = [self._line(number, key, results.get(key)) for key in keys]
        return tuple(each for each in lines if each is not None)

    def _line(self, number: int, key: str, before: int | None) -> Line | None:
        """None in a state with two stores where the key has no entry: it may have got one in the other store."""
        rng, named = self._world.rng, self._world.scenario.named
        after = rng.randrange(500_000)
        if before is None:
            return None if named else Line(number, self.schema, key, None, after)
        if rng.random() < 0.25 and not named:
            return Line(number, self.schema, key, before, None)
        return Line(number, self.schema, key, before, (before + 2 + 2 * after) % 1_000_002)  # in the same store

    async def _patch(self, client: Process, how: str, lines: tuple[Line, ...]) -> None:
        made = await self._carry_out(client, lines)
        for _ in range(2):  # what may have been made, or not, is tried again
            if made in TRY_AGAIN and not self._world.healing:
                made = await self._carry_out(self._client(lines), lines)
        if made != "made" or how not in ("twice", "undo"):
            return
        lines = lines if how == "twice" else tuple(each.undone() for each in lines)
        if how == "twice":  # drawn apart: the other histories stay what they were
            await asyncio.sleep(random.Random(f"twice {client.name} {lines}").choice(AGAIN_SECONDS))
        self._world.network.met(f"patch {how}: {await self._carry_out(self._client(lines), lines)}")

    async def _carry_out(self, client: Process, lines: tuple[Line, ...]) -> str:
        """Return what came of it: "made", "done already", an error, or "killed"."""
        reason = f"{client.name} at {self._world.loop.time():.3f}"
        self.tried[reason] = lines
        work = client.spawn(_corrected(client, [each.text(self._world.scenario.variant) for each in lines], reason))
        await asyncio.wait([work])
        error = None if work.cancelled() else work.exception()
        if work.cancelled():
            said = "killed"
        elif error is not None:
            said = type(error).__name__
        else:
            said = "made" if work.result() else "done already"
        self._world.network.trace(client.name, f"{lines}: {said} {error or ''}")
        self._world.network.met(f"patch: {said}")
        if said == "made":
            self.done.append((lines[0].number, reason))
        elif isinstance(error, NotCorrected | product.OwnerTookItBack):
            self.refused.add(reason)
        elif error is not None and not isinstance(error, SnapreplayError):
            self._world.network.misused(f"{client.name}: {error!r}")
        return said


async def _corrected(client: Process, lines: list[bytes], reason: str) -> bool:
    """Say whether there was something to correct."""
    patches = await product.propose(client.app, client.settings, client.cluster, lines, reason, lambda _: None)
    try:
        for each in patches:
            await product.carry_out(each)
    finally:
        await product.close(patches)
    return bool(patches)
