"""Runs seeds. The same seed gives the same history, event by event."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from tests.simulation import scenario
from tests.simulation.deciding import DECISIONS
from tests.simulation.faults import fault_kinds
from tests.simulation.history import Violation
from tests.simulation.loop import VirtualLoop
from tests.simulation.pausing import PAUSES
from tests.simulation.rewiring import COMMANDS
from tests.simulation.seeding import seeded
from tests.simulation.suspecting import SUSPICIONS
from tests.simulation.world import World

PHASES = ("assigned", "fencing", "claiming", "locating", "loading", "advancing", "live")

WANTED: tuple[str, ...] = (
    *fault_kinds(),
    *dict.fromkeys(scenario.EVENTS),
    *(f"phase {name}" for name in (*PHASES, "fenced", "failed", "closed")),
    "mode changes",
    "mode replay",
    "mode none",
    "start genesis",
    "start snapshot",
    "recovery with several attempts",
    "stale leader",
    "trigger succeeded",
    "trigger skipped",
    "trigger failed",
    "proposal succeeded",
    "proposal failed",
    "proposal with timers succeeded",
    *PAUSES,
    *(f"{what} {how}" for what in ("pause", "resume") for how in ("succeeded", "skipped", "failed")),
    "pause of a former owner",
    "stepped down for a younger process of the same name",
    "came back after the younger process was gone",
    "waits for its genesis",
    "init again",
    "retry failed",
    "hotfix",
    "replaced by equal",
    "replaced by longer",
    "replaced by shorter",
    "replaced by prefix",
    "refused: InputReplaced",
    "refused: InputShorter",
    "fetch of a topic that is gone",
    "epilogue restart",
    "epilogue changed code",
    "changed code refused",
    "looked at while it was sealed",
    "timer fired",
    "timer skipped",
    "period passed",
    "entry expired",
    "clean input",
    *(f"cleaner: {what}" for what in ("rewritten batch", "emptied marker", "removed marker", "emptied batch")),
    "batch ended between two timers",
    "turn continued in another batch",
    "time passed on quiet input",
    "pipeline: staging in steps",
    "pipeline: feeding in steps",
    "follower: advance in steps",
    "snapshot_writer: slicing in steps",
)
"""What all seeds must have gone through, or the simulator proves less than it says: fault kinds as "site.kind",
events, phases, modes, and what else is rare."""

WITHOUT_CHANGES = frozenset({"inputs: NotRetirable"})
"""What happens only to a state without recorded changes; a standby needs them."""

WANTED_DECISIONS = (
    *WITHOUT_CHANGES,
    *DECISIONS,
    *COMMANDS,
    *(f"input added: {start}" for start in ("earliest", "latest", "resume")),
    "input retired",
    "input retired, records left",
    "other inputs refused",
    "inputs: made",
    "inputs: killed",
    "inputs: NotDrained",
    "state upgraded",
    "input taken in",
    "state corrected",
    "older code refused",
    "patch: made",
    "patch: killed",
    "patch: NotCorrected",
    "patch: OlderState",
    "patch: CommitInDoubt",
    "patch twice: NotCorrected",
    "patch undo: made",
)
"""The same, of histories with decisions."""

WANTED_STANDBYS = (
    *dict.fromkeys(SUSPICIONS),
    *(f"suspected: {how}, {whom}" for how in ("refused", "silent") for whom in ("dead", "living")),
    "partition taken over",
    "takeover confirmed",
    "takeover denied",
    "false alarm",
    "rebalance that timed out",
    "copy loading",
    "copy warm",
    "copy ahead",
    "looked at a copy",
    "copy by changes",
    "copy by replay",
    "live from a copy",
    "balanced, and all copies are warm",
)
"""The same, of histories with standbys."""

WANTED_CALLS = (
    "call made",
    "call made twice",
    "call failed",
    "call refused",
    "call without a result in time",
    "crash before a call",
    "crash after a call",
    "timer has called",
    "answer handled",
    "answer dropped",
    "answer skipped",
)
"""The same, of histories with calls."""

WANTED_TABLES = ("joined with a table", "joined with the backlog", "deleted from a table")
WANTED_COMPACTED = ("table: superseded record",)
"""The same, of histories with a table, and with one that is compacted."""

SEEDS_FOR_ALL = 2_000
"""So many histories meet all that is wanted."""

COLLECT_EVERY = 20
"""Seeds whose cycles are collected together."""


class Kind(TypedDict, total=False):
    """The kind of a history, beside its seed; see `run_seed`."""

    losses: bool
    decisions: bool
    standbys: bool
    rekeys: bool
    calls: bool
    tables: bool
    broadcast: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed. `problem` is None when every promise was kept; `lines` only when traced."""

    seed: int
    problem: str | None
    counts: Counter[str]
    virtual_seconds: float
    lines: list[str]

    @property
    def trace_digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


def run_seed(
    seed: int,
    *,
    trace: bool = False,
    losses: bool = False,
    decisions: bool = False,
    standbys: bool = False,
    rekeys: bool = False,
    calls: bool = False,
    tables: bool = False,
    broadcast: bool = False,
) -> Outcome:
    """One whole history; with `losses` one in which brokers lose the end of a log, with `decisions` one whose state may
    be upgraded and corrected, with `standbys` one whose processes hold copies, with `rekeys` one of an app with an
    internal topic, with `calls` one of an app that calls the outside, with `tables` or `broadcast` one with a table."""
    rng = random.Random(seed)
    drawn = scenario.draw(rng)
    if losses:
        drawn = scenario.losing(drawn, random.Random(f"losses {seed}"))
    if decisions:
        drawn = scenario.deciding(drawn, random.Random(f"decisions {seed}"))
    if standbys:
        drawn = scenario.standing_by(drawn, random.Random(f"standbys {seed}"))
    if rekeys:
        drawn = scenario.rekeying(drawn, random.Random(f"rekeys {seed}"))
    if calls:
        drawn = scenario.calling(drawn, random.Random(f"calls {seed}"))
    if tables:
        drawn = scenario.tabling(drawn, random.Random(f"tables {seed}"))
    if broadcast:
        drawn = scenario.broadcasting(drawn, random.Random(f"broadcast {seed}"))
    loop = VirtualLoop()
    world = World(loop, drawn, rng)
    if trace:
        world.network.lines = [repr(drawn)]
    problem = run_world(loop, world, rng)
    lines = world.network.lines or []
    return Outcome(seed, problem, world.network.faults.counts, loop.time(), lines)


def run_world(loop: VirtualLoop, world: World, rng: random.Random) -> str | None:
    """Let it happen. Returns which promise was broken, None when all were kept; the loop is closed."""
    problem = None
    collecting = gc.isenabled()
    loop.set_exception_handler(lambda _, context: _heard(world, context))
    gc.disable()  # when a cycle is collected must not depend on what ran before
    logging.disable(logging.CRITICAL)
    try:
        with seeded(world):
            loop.run_until_complete(world.run())
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any error that ends a history is its verdict
        known = isinstance(error, Violation)
        problem = str(error) if known else f"{type(error).__name__}: {error}"
    finally:
        _dispose(loop, world)
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
    return problem


@dataclass
class Tally:
    seeds: int = 0
    virtual_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    problems: dict[int, str] = field(default_factory=dict)
    wanted: tuple[str, ...] = WANTED

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.virtual_seconds += other.virtual_seconds
        self.counts.update(other.counts)
        self.problems.update(other.problems)
        self.wanted = other.wanted

    @property
    def missed(self) -> list[str]:
        """Fault kinds, events, phases and modes that no history went through."""
        return sorted(set(self.wanted) - {kind for kind, count in self.counts.items() if count})

    def failures(self, **kind: Unpack[Kind]) -> list[str]:
        """Say why these histories are a failure, each time with where to look; empty: they are none."""
        found = [f"broken promise, seed {seed}: {replay_command(seed, **kind)}" for seed in sorted(self.problems)]
        if self.seeds >= SEEDS_FOR_ALL and self.missed:
            found.append(
                f"never met in {self.seeds:,} histories, enough to meet everything: {', '.join(self.missed)}."
                " tests/simulation/run.py has the names; search tests/simulation for what counts them"
            )
        return found

    def table(self) -> str:
        width = max(map(len, self.wanted))
        rows = [f"  {kind:<{width}} {self.counts[kind]:>9}" for kind in self.wanted]
        head = (
            f"{self.seeds} histories, {self.virtual_seconds / 3600:.1f} simulated hours,"
            f" {len(self.problems)} broken promises"
        )
        return "\n".join([head, *rows])


def run_block(seeds: Iterable[int], **kind: Unpack[Kind]) -> Tally:
    wanted = {*WANTED, *(WANTED_DECISIONS if kind.get("decisions") else ())}
    wanted |= {
        *(WANTED_CALLS if kind.get("calls") else ()),
        *(WANTED_TABLES if kind.get("tables") or kind.get("broadcast") else ()),
        *(WANTED_COMPACTED if kind.get("tables") else ()),
    }
    if kind.get("standbys"):
        wanted = (wanted - WITHOUT_CHANGES).union(WANTED_STANDBYS)
    tally = Tally(wanted=tuple(sorted(wanted)))
    gc.collect()
    gc.freeze()  # what is there now is not looked at again and again
    for seed in seeds:
        if seed % COLLECT_EVERY == 0:
            gc.collect()
        outcome = run_seed(seed, **kind)
        tally.seeds += 1
        tally.virtual_seconds += outcome.virtual_seconds
        tally.counts.update(outcome.counts)
        if outcome.problem is not None:
            tally.problems[seed] = outcome.problem
    gc.unfreeze()
    gc.collect()
    return tally


def kept(seeds: Iterable[int], **kind: Unpack[Kind]) -> Tally:
    """Play a block of histories.

    Raises:
        AssertionError: a promise was broken; it says by which seeds, and how to play them again.
    """
    tally = run_block(seeds, **kind)
    broken = [f"seed {seed}: {problem}\n  {replay_command(seed, **kind)}" for seed, problem in tally.problems.items()]
    assert not broken, "\n".join(broken)
    return tally


def replay_command(seed: int, **kind: Unpack[Kind]) -> str:
    flags = "".join(f" --{name}" for name, is_so in kind.items() if is_so)
    return f"python -m tests.simulation --seed {seed}{flags} --trace"


def _heard(world: World, context: dict[str, Any]) -> None:
    """Something raised where no task waits for it: in a callback. Of tasks whose outcome no task asked for the loop
    tells when they are collected, which is no matter of the history."""
    if "handle" in context:
        world.network.misused(f"a callback failed: {context.get('exception')!r}")


def _dispose(loop: VirtualLoop, world: World) -> None:
    """Dispose of the tasks that are left after a violation; they are not to be reported."""
    for process in world.everybody:
        process.dead = True
        loop.resume(process)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=60))
    loop.close()
