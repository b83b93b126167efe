"""One run: brokers, processes, load, faults, healing, verdict."""

from __future__ import annotations

import shutil
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from snapreplay.app import names
from tests.chaos import judge, report
from tests.chaos.facts import TRANSACTIONS, Facts
from tests.chaos.faults.topics import apart
from tests.chaos.lanes import carry_out
from tests.chaos.processes import SETTINGS, Place, Slot, drawn_settings, until
from tests.chaos.schedule import Kind, draw
from tests.chaos.settle import settle
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Watch
from tests.chaos.wires import Wires
from tests.chaos.world import World
from tests.checker.load import Load
from tests.support.deadlines import scaled
from tests.support.three_brokers import SIZE, ThreeBrokers, three_brokers

LIVE_S = 90.0
KEYS = 20_000
HOLDS = 0.2
OTHER_MODE = {"changes": "replay", "replay": "changes"}


@dataclass(frozen=True)
class Plan:
    """The plan of a run. `kinds`: those that may be drawn."""

    seed: int
    seconds: float
    kinds: frozenset[Kind] = frozenset(Kind)
    processes: int = 3
    partitions: int = 3


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> report.Outcome:
    """Run it, and write the report to `folder`; logs stay there (`folder`/logs) unless all was good."""
    logs = folder / "logs"
    shutil.rmtree(folder, ignore_errors=True)
    logs.mkdir(parents=True)
    timeline = Timeline(say)
    outcome = report.Outcome(
        plan.seed,
        plan.seconds,
        plan.processes,
        plan.partitions,
        settings=drawn_settings(plan.seed),
        planned=draw(plan.seed, plan.seconds, plan.kinds),
        injected=timeline.injected,
        entries=timeline.entries,
        problems=timeline.problems,
    )
    with _told(timeline, logs), three_brokers() as brokers:
        try:
            _run(plan, outcome, brokers, logs, timeline)
        finally:
            _keep_broker_logs(brokers, logs)
    if outcome.good:
        shutil.rmtree(logs)
    report.write(outcome, folder)
    return outcome


@contextmanager
def _told(timeline: Timeline, logs: Path) -> Iterator[None]:
    """Tell of what breaks off as a problem of the run; what comes after it happens all the same: verdict and
    report."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the report must be written, whatever happened
        timeline.problem(f"the run broke off: {type(error).__name__}: {error}")
        with (logs / "broke-off.txt").open("a") as file:
            file.write(traceback.format_exc())


def _run(
    plan: Plan, outcome: report.Outcome, brokers: ThreeBrokers, logs: Path, timeline: Timeline
) -> None:
    servers, app_id = brokers.bootstrap_servers, f"chaos-{uuid.uuid4().hex[:8]}"
    inputs, outputs = judge.prepare(servers, app_id, plan.partitions)
    ours = (names.increments_topic(app_id), names.snapshots_topic(app_id), *inputs, *outputs)
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(servers))
        place = Place(servers, app_id, {**SETTINGS, **outcome.settings}, logs, timeline)
        slots = [Slot(f"p{n}", place, wires.bundle()) for n in range(plan.processes)]
        facts, topics = Facts(servers, app_id), (*ours, TRANSACTIONS)
        world = World(app_id, plan.partitions, brokers, facts, wires, slots, timeline, topics)
        apart(world, outputs[0])
        with _told(timeline, logs), _started(world), Watch(slots, timeline) as watch:
            outcome.restores = watch.restores
            with Load(servers, app_id, plan.partitions, plan.seed, keys=KEYS, holds=HOLDS):
                _wait_live(world)
                timeline.start()
                carry_out(world, outcome.planned, plan.seconds)
            timeline.note("run", "no input any more")
            outcome.settle_seconds = settle(world, inputs)
            _stop(world)
            _prove_again(world, OTHER_MODE[str(outcome.settings["restore.mode"])])
        judge.judge(outcome, servers, app_id, place.outcomes)


@contextmanager
def _started(world: World) -> Iterator[None]:
    try:
        for slot in world.slots:
            slot.start()
        yield
    finally:
        for slot in world.slots:
            slot.end_all()


def _wait_live(world: World) -> None:
    def live() -> int:
        phases = [p for slot in world.slots for p in slot.process.phases().values()]
        return phases.count("live")

    if not until(lambda: live() >= world.partitions, LIVE_S):
        raise TimeoutError(f"not live in {scaled(LIVE_S):.0f} s before any fault")


def _stop(world: World) -> None:
    """SIGTERM to all: each ends with exit code 0."""
    for slot in world.slots:
        slot.stop()


def _prove_again(world: World, mode: str) -> None:
    """A new process restores everything by the mode that was not taken until now: the digests must come out equal."""
    slot = world.slots[0]
    process = slot.start(restore__mode=mode)

    def live() -> bool:
        slot.check()
        return list(process.phases().values()).count("live") == world.partitions

    if not until(live, LIVE_S):
        world.timeline.problem(
            f"no restore by {mode} in {scaled(LIVE_S):.0f} s: {process.phases()}"
        )
        return
    status = process.get("/restore-status")["partitions"]
    for each in status:
        proof = each["proof"]
        if proof is None or not proof["equal"] or proof["batches_compared"] == 0:
            world.timeline.problem(f"restored by {mode} without proof: {each}")
    slot.stop()
    world.timeline.note("run", f"restored by {mode}, {len(status)} digests equal")


def _keep_broker_logs(brokers: ThreeBrokers, logs: Path) -> None:
    for number in range(SIZE):
        shutil.copy(brokers.cluster.node(number).log_path, logs / f"broker-{number}.log")
