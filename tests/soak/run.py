"""One broker, two service processes, steady load, kills; then the checker's verdict."""

import asyncio
import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from snapreplay.devbroker.broker import LocalBroker
from tests.chaos.processes import Place, Slot, until
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Watch
from tests.checker import app, verify
from tests.checker.load import Load
from tests.soak.report import Outcome
from tests.soak.sampling import EVERY_S, Sampler
from tests.soak.schedule import Kill, draw
from tests.soak.trend import of_restores, over_lives, within_lives
from tests.support.stage import Stage

PROGRAM = Path(__file__).with_name("program.py")
TASKS = "SOAK_TASKS"
"""Path of a file in which a process keeps one number: its asyncio tasks."""
PARTITIONS = 4
RATE = 400
KEYS = 2000
LIVE_S = 60.0
HEAL_S = 60.0
SETTINGS: Mapping[str, object] = {
    "group.session_timeout_ms": 3000,
    "group.heartbeat_interval_ms": 300,
    "restore.retry_backoff_ms": 100,
    "restore.retry_backoff_max_ms": 3000,
    "snapshot.every_records": 2000,
}
"""A killed member is noticed in seconds, and each restore has some batches to bring forward."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run. `standbys`: each partition has a warm copy. `every_s`: between two kills; None: drawn."""

    seed: int
    minutes: float
    standbys: int = 0
    every_s: float | None = None

    @property
    def kills(self) -> list[Kill]:
        return draw(self.seed, self.minutes * 60, self.every_s)


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    """`folder` is emptied; logs and journal of the services stay there when the outcome is not good."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    app_id, timeline = f"soak-{uuid.uuid4().hex[:8]}", Timeline(say)
    outcome = Outcome(plan.seed, plan.minutes, timeline.problems)
    with LocalBroker() as broker, ExitStack() as stack:
        servers = broker.bootstrap_servers
        asyncio.run(Stage(servers, app.make(app_id), PARTITIONS).prepare())
        place = Place(servers, app_id, {**SETTINGS, "standby.replicas": plan.standbys}, folder, timeline, PROGRAM)
        tasks = {name: folder / f"{name}.tasks" for name in ("p0", "p1")}
        slots = {Slot(name, place, variables={TASKS: str(path)}): path for name, path in tasks.items()}
        for slot in slots:
            stack.callback(slot.end_all)
            slot.start()
        if not until(lambda: _live(slots) == PARTITIONS, LIVE_S):
            raise TimeoutError(f"not all partitions LIVE in {LIVE_S:.0f} s")
        timeline.start()
        load = Load(servers, app_id, PARTITIONS, plan.seed, rate=RATE, keys=KEYS)
        watch, sampler = Watch([*slots], timeline, EVERY_S), Sampler(slots, timeline)
        outcome.restores, outcome.told, outcome.samples = watch.restores, watch.told, sampler.samples
        with load, watch, sampler:
            outcome.kills = _kill([*slots], plan.kills, plan.minutes * 60, timeline)
        outcome.records = load.sent
        timeline.note("run", "no input any more")
        until(lambda: all(slot.process.get("/healthz") for slot in slots), LIVE_S)  # one may have just been started
        _judge(outcome, place, [slot.process.url for slot in slots])
        for slot in slots:
            slot.stop()
    return outcome


def _kill(slots: list[Slot], kills: list[Kill], seconds: float, timeline: Timeline) -> list[Kill]:
    """Carry out kills and restarts in the order of time."""
    actions = [(kill.at_s, kill.who, "kill") for kill in kills]
    actions += [(kill.at_s + kill.down_s, kill.who, "start") for kill in kills]
    for at_s, who, action in sorted(actions):
        _wait_until(at_s, timeline)
        if action == "start":
            slots[who].start()
        else:
            _check(slots)
            slots[who].kill()
    _wait_until(seconds, timeline)
    _check(slots)
    return kills


def _wait_until(at_s: float, timeline: Timeline) -> None:
    """The soak's own clock: nothing is waited for but the time of the next kill."""
    Event().wait(max(0.0, at_s - timeline.now_s()))


def _check(slots: list[Slot]) -> None:
    for slot in slots:
        slot.check()


def _judge(outcome: Outcome, place: Place, urls: list[str]) -> None:
    outcome.verdict = verify(
        place.bootstrap_servers, place.app_id, outcomes=place.outcomes, deadline_seconds=HEAL_S, urls=urls
    )
    unproven = [each for each in outcome.restores if each.proof_equal is not True]
    outcome.problems += [f"restore without an equal digest: {each}" for each in unproven]
    share = PARTITIONS // len(urls)
    outcome.trends = [
        *within_lives(outcome.samples, share),
        *over_lives(outcome.samples, share),
        *of_restores(outcome.restores),
    ]


def _live(slots: Mapping[Slot, Path]) -> int:
    return sum(list(slot.process.phases().values()).count("live") for slot in slots)
