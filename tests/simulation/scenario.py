"""The meaning of a seed: how many of everything, which settings, which events at which time."""

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from snapreplay.app.names import broadcast_input
from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import TopicPartition
from tests.simulation import program
from tests.simulation.deciding import draw_kinds
from tests.simulation.losing import Loss, draw_losses
from tests.simulation.pausing import draw_pauses
from tests.simulation.rewiring import draw_commands
from tests.simulation.suspecting import draw_suspicions

EPOCH_SECONDS = 1_700_000_000.0
"""What the clocks show when a history begins."""

Epilogue = Literal["none", "restart", "changed code"]

EVENTS = (
    "crash",
    "stall",
    "rebalance",
    "cut",
    "twin",
    "pin increments",
    "pin input",
    "pin output",
    "pin snapshots",
    "stale broker",
    "stale broker",
    "stale broker",
    "trigger",
    "trim input",
    "replace input",
    "replace input",
    "replace increments",
    "replace snapshots",
    "foreign record",
    "orphan",
    "start process",
    "stop process",
    "propose good",
    "propose twice",
    "propose late",
    "propose stale",
    "propose forged",
    "propose ahead",
)
"""What the simulator does by itself, beside the faults of single requests."""


BEFORE_THE_GENESIS = ("crash", "stall", "rebalance", "cut", "stale broker", "start process")
"""Those of them that need no log."""


@dataclass(frozen=True)
class Event:
    at: float
    kind: str
    seconds: float
    """How long it lasts, where it lasts."""


GROUP = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 500}
"""As the group is simulated."""

KNOBS = (
    "changes",
    "replicas",
    "mode",
    "dead_letter",
    "every_records",
    "kept",
    "records_max",
    "linger_ms",
    "idle_advance_ms",
)
"""What differs in the settings of two scenarios."""


@dataclass(frozen=True)
class Scenario:
    partitions: int
    processes: int
    inputs: int
    records: int  # per input partition
    changes: bool
    mode: Literal["changes", "replay"]
    dead_letter: bool
    every_records: int
    kept: int
    records_max: int
    slice_records: int
    linger_ms: int
    fat: bool
    named: bool  # the state has two stores instead of one map
    timed: bool  # its entries expire, and there are timers
    idle_advance_ms: int
    poison: float  # share of the records
    slow_markers: bool
    chaos_seconds: float
    events: tuple[Event, ...]
    epilogue: Epilogue
    last_snapshot: bool
    slow_steps: bool  # of work on a batch or a snapshot: something may come between two of them
    begins_late: bool = False  # the processes are there before the genesis; topics are not exchanged meanwhile

    losses: tuple[Loss, ...] = ()
    """What the brokers lose."""
    ahead_records: int = 0
    """Fetched beside what is asked for."""
    brokers_agree: bool = False
    """Whether all of them answer when they are asked where a log ends."""
    stays_shorter: bool = False
    """Whether nothing more is written to an input that was replaced by a shorter one."""
    appears_at: float | None = None
    """When the last input is created, of an app whose inputs are a pattern."""
    replicas: int = 0
    """`standby.replicas` of all processes."""
    faults_apart: tuple[str, ...] = ()
    """Kinds of faults beside those that every history may have."""
    inputs_at_first: int | None = None
    """How many of them the app has, if commands change that."""
    rekeys: bool = False
    """It has an internal topic, to which it sends some of its records under another key."""
    calls: bool = False
    """It calls the outside."""
    tables: bool = False
    """It joins its records with a table, a compacted topic."""
    broadcast: int = 0
    """The number of partitions of that topic, if each partition of the app reads all of them; else 0."""

    @property
    def table_logs(self) -> dict[str, tuple[TopicPartition, ...]]:
        """The inputs that the table is, each with its logs."""
        if not self.tables:
            return {}
        if not self.broadcast:
            return {program.TABLE: tuple(TopicPartition(program.TABLE, number) for number in range(self.partitions))}
        logs = (TopicPartition(program.TABLE, number) for number in range(self.broadcast))
        return {broadcast_input(*log): (log,) for log in logs}

    @property
    def variant(self) -> dict[str, Any]:
        may_fail = self.timed and self.poison > 0
        return {"fat": self.fat, "named": self.named, "timed": self.timed, "may_fail": may_fail}

    def settings(self, instance_id: str) -> Settings:
        return _settings(instance_id, **{name: getattr(self, name) for name in KNOBS})


def instance_id(number: int) -> str:
    """Return the name of a process by its number from 0."""
    return "abcdefghijklmnopqrstuvwxyz"[number] if number < 26 else f"p{number}"


def draw(rng: random.Random) -> Scenario:
    partitions = rng.choices((1, 2, 3, 4), (12, 5, 2, 1))[0]
    inputs = rng.choice((1, 1, 2))
    changes = rng.random() < 0.7
    chaos_seconds = rng.choice((2.0, 4.0, 8.0))
    total = rng.choice((12, 24, 36, 48))
    fat = rng.random() < 0.06
    drawn = Scenario(
        partitions=partitions,
        processes=rng.choice((1, 2, 2, 3)),
        inputs=inputs,
        records=max(4, total // (partitions * inputs)),
        changes=changes,
        mode="changes" if changes and rng.random() < 0.6 else "replay",
        dead_letter=rng.random() < 0.5,
        every_records=rng.choice((0, 2, 3, 4, 6)),
        kept=rng.choice((2, 2, 3)),
        records_max=rng.choice((1, 3, 5, 8)),
        slice_records=rng.choice((1, 3, 5000, 5000)),
        linger_ms=rng.choice((0, 2)),
        fat=fat,
        **_drawn_apart(_apart(rng)),
        poison=rng.choice((0.0, 0.0, 0.03, 0.1)),
        slow_markers=rng.random() < 0.6,
        chaos_seconds=chaos_seconds,
        events=_events(rng, chaos_seconds),
        epilogue=rng.choice(("none", "none", "none", "none", "restart", "changed code")),
        last_snapshot=rng.random() < 0.5,
        slow_steps=rng.random() < 0.3,
    )
    return begun_late(drawn) if rng.random() < 0.06 else cleaning(pausing(drawn, _apart(rng)), _apart(rng))


def losing(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same, with brokers that lose the end of a log, and without topics that are exchanged."""
    # A log that was cut and then cleaned may look like one that was only cleaned: the two look alike.
    kept = tuple(each for each in scenario.events if not each.kind.startswith(("replace", "clean")))
    return replace(
        scenario,
        begins_late=False,
        events=kept,
        losses=draw_losses(rng, scenario.chaos_seconds),
        ahead_records=rng.choice((0, 3, 10)),
    )


def deciding(scenario: Scenario, rng: random.Random) -> Scenario:
    """Most of them: the same, with upgrades, corrections and an input that appears, and without own topics that are
    exchanged."""
    if scenario.begins_late or rng.random() < 0.3:
        return scenario
    kept = [each for each in scenario.events if not each.kind.startswith(("replace increments", "replace snapshots"))]
    seconds = scenario.chaos_seconds
    drawn = [
        Event(seconds * rng.random(), kind, rng.choice((0.1, 0.5, 1.5)) * (0.5 + rng.random()))
        for kind in draw_kinds(rng, changes=scenario.changes)
    ]
    appears_at = seconds * rng.random() if scenario.inputs > 1 else None
    decided = replace(scenario, events=_in_order(*kept, *drawn), appears_at=appears_at)
    apart = _apart(rng)
    return decided if scenario.losses or apart.random() < 0.6 else rewired(decided, apart)


def standing_by(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same, with warm copies in other processes, suspicions of processes that live, and drains."""
    seconds = scenario.chaos_seconds
    drawn = [
        Event(seconds * rng.random(), kind, rng.choice((0.1, 0.5, 1.5)) * (0.5 + rng.random()))
        for kind in draw_suspicions(rng)
    ]
    apart = _apart(rng)
    drains = [
        Event(seconds * apart.random(), "drain", seconds * apart.random()) for _ in range(apart.choice((0, 1, 2)))
    ]
    return replace(
        scenario,
        processes=rng.choice((2, 2, 3)),
        replicas=rng.choice((1, 1, 2)),
        events=_in_order(*scenario.events, *drawn, *drains),
    )


def rekeying(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same with an internal topic, and without own topics that are exchanged."""
    kept = tuple(e for e in scenario.events if not e.kind.startswith(("replace increments", "replace snapshots")))
    return replace(scenario, events=kept, partitions=rng.choice((1, 2, 3)), fat=False, rekeys=True)


def calling(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same with calls to the outside, and without own topics that are exchanged. Some also have what `rekeying`
    adds."""
    kept = tuple(e for e in scenario.events if not e.kind.startswith(("replace increments", "replace snapshots")))
    called = replace(scenario, events=kept, fat=False, calls=True)
    return rekeying(called, rng) if rng.random() < 0.2 else called


def tabling(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same with a table, which is compacted meanwhile, and without own topics that are exchanged."""
    kept = [e for e in scenario.events if not e.kind.startswith(("replace increments", "replace snapshots"))]
    drawn = [Event(scenario.chaos_seconds * rng.random(), "compact table", 0.0) for _ in range(rng.choice((1, 3, 6)))]
    events = _in_order(*kept, *drawn)
    tabled = replace(scenario, events=events, losses=(), fat=False, named=True, tables=True)
    return replace(tabled, changes=True, mode="changes")  # what is compacted cannot be replayed


def broadcasting(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same with a table that each partition reads as a whole. It is not compacted, so it may be replayed."""
    made = replace(tabling(scenario, rng), broadcast=rng.choice((1, 2, 3, 4)), partitions=rng.choice((1, 2, 3)))
    events = tuple(each for each in made.events if each.kind != "compact table")
    return replace(made, events=events, changes=scenario.changes, mode=scenario.mode)


def pausing(scenario: Scenario, rng: random.Random) -> Scenario:
    """Some of them: the same, with operators who pause partitions."""
    seconds = scenario.chaos_seconds
    drawn = [Event(seconds * rng.random(), kind, seconds * rng.random() / 2) for kind in draw_pauses(rng)]
    return replace(scenario, events=_in_order(*scenario.events, *drawn))


def cleaning(scenario: Scenario, rng: random.Random) -> Scenario:
    """Some of them: the same, with a log cleaner, answers that are cut off, and quotas."""
    cleanings = [
        Event(scenario.chaos_seconds * rng.random(), "clean input", 0.0) for _ in range(rng.choice((0, 0, 0, 2, 5)))
    ]
    return replace(
        scenario,
        events=_in_order(*scenario.events, *cleanings),
        faults_apart=rng.choice(((), (), (), ("cut",), ("throttled",), ("cut", "throttled"))),
    )


def rewired(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same, but commands change its inputs, and no input is exchanged."""
    kept = [each for each in scenario.events if not each.kind.startswith("replace")]
    drawn = [Event(scenario.chaos_seconds * rng.random(), kind, 0.0) for kind in draw_commands(rng)]
    events, at_first = _in_order(*kept, *drawn), rng.choice((1, 2))
    return replace(scenario, inputs=2, events=events, appears_at=None, inputs_at_first=at_first)


def begun_late(scenario: Scenario) -> Scenario:
    """The same, but `init` comes when the processes are there."""
    events = tuple(each for each in scenario.events if each.kind in BEFORE_THE_GENESIS)
    return replace(scenario, begins_late=True, events=events)


def _drawn_apart(rng: random.Random) -> dict[str, Any]:
    return {
        "named": rng.random() < 0.25,
        "timed": (timed := rng.random() < 0.3),
        "idle_advance_ms": rng.choice((0, 50)) if timed else 0,
        "brokers_agree": rng.random() < 0.5,
        "stays_shorter": rng.random() < 0.5,
    }


def _apart(rng: random.Random) -> random.Random:
    """A generator whose draws do not change what `rng` draws: what came later leaves the histories of all seeds."""
    apart = random.Random()
    apart.setstate(rng.getstate())
    return random.Random(apart.random())


def _events(rng: random.Random, chaos_seconds: float) -> tuple[Event, ...]:
    count = rng.choice((0, 1, 3, 6))
    drawn = [
        Event(chaos_seconds * rng.random(), rng.choice(EVENTS), rng.choice((0.1, 0.5, 1.5, 4.0)) * (0.5 + rng.random()))
        for _ in range(count)
    ]
    return _in_order(*drawn)


def _in_order(*events: Event) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.at))


@lru_cache(maxsize=4096)
def _settings(instance_id: str, **knobs: Any) -> Settings:
    """Checking them takes longer than a small history."""
    tables: dict[str, Any] = {
        "changelog": {"enabled": knobs["changes"]},
        "batch": {"records_max": knobs["records_max"], "linger_ms": knobs["linger_ms"]},
        "stream_time": {"idle_advance_ms": knobs["idle_advance_ms"]},
        "snapshot": {"every_records": knobs["every_records"], "every_seconds": 0, "chunk_bytes_max": 10_000},
        "restore": {"mode": knobs["mode"], "retry_backoff_ms": 20, "retry_backoff_max_ms": 1000},
        "errors": {"policy": "dead_letter" if knobs["dead_letter"] else "fail", "dead_letters_percent_max": 100},
        "timeouts": {
            "metadata_ms": 2000,
            "progress_ms": 2000,
            "fence_ms": 1000,
            "commit_ms": 1000,
            "transaction_ms": 2000,
            "claim_grace_ms": 100,
            "revoke_ms": 2000,
            "shutdown_ms": 25_000,
        },
        "retention": {"snapshots_kept": knobs["kept"]},
    }
    if knobs["replicas"]:
        tables |= {"standby": {"replicas": knobs["replicas"]}, "group": GROUP}
    return Settings(kafka={"request.timeout.ms": 200}, instance_id=instance_id, **tables)
