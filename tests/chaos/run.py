"""One run: brokers, processes, load, faults, healing, verdict."""

import asyncio
import shutil
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from snapreplay.app import names
from snapreplay.errors import UsageError
from tests.chaos import report
from tests.chaos.facts import TRANSACTIONS, Facts
from tests.chaos.faults.topics import apart
from tests.chaos.lanes import carry_out
from tests.chaos.processes import SETTINGS, Place, Slot, drawn_settings, until
from tests.chaos.schedule import Kind, draw
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Watch
from tests.chaos.wires import Wires
from tests.chaos.world import World
from tests.checker import app as checked
from tests.checker import verify
from tests.checker.healing import troubles
from tests.checker.load import Load
from tests.checker.reading import Logs, Names
from tests.support.deadlines import scaled
from tests.support.stage import Stage
from tests.support.three_brokers import SIZE, ThreeBrokers, three_brokers

LIVE_S = 90.0
HEALED_S = 60.0
PREPARED_S = 30.0
KEYS = 20_000
HOLDS = 0.2
OTHER_MODE = {"changes": "replay", "replay": "changes"}


@dataclass(frozen=True)
class Plan:
    """The plan of a run. `kinds`: those that may be drawn. `hold_s`: of each fault, instead of what its kind says."""

    seed: int
    seconds: float
    kinds: frozenset[Kind] = frozenset(Kind)
    processes: int = 3
    partitions: int = 3
    hold_s: float | None = None


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
        planned=draw(plan.seed, plan.seconds, plan.kinds, plan.hold_s),
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
    except Exception as error:  # noqa: BLE001 - the report must be written after any error
        timeline.problem(f"the run broke off: {type(error).__name__}: {error}")
        with (logs / "broke-off.txt").open("a") as file:
            file.write(traceback.format_exc())


def _run(plan: Plan, outcome: report.Outcome, brokers: ThreeBrokers, logs: Path, timeline: Timeline) -> None:
    servers, app_id = brokers.bootstrap_servers, f"chaos-{uuid.uuid4().hex[:8]}"
    inputs, outputs = _prepare(servers, app_id, plan.partitions)
    ours = (names.increments_topic(app_id), names.snapshots_topic(app_id), *inputs, *outputs)
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(servers))
        place = Place(servers, app_id, {**SETTINGS, **outcome.settings}, logs, timeline)
        slots = [Slot(f"p{n}", place, wires.bundle()) for n in range(plan.processes)]
        facts, topics = Facts(servers, app_id), (*ours, TRANSACTIONS)
        world = World(app_id, plan.partitions, brokers, facts, wires, slots, timeline, topics)
        apart(world, outputs[0])
        with _told(timeline, logs), _started(world), Watch(slots, timeline) as watch:
            outcome.restores, outcome.told = watch.restores, watch.told
            with Load(servers, app_id, plan.partitions, plan.seed, keys=KEYS, holds=HOLDS):
                _wait_live(world)
                timeline.start()
                carry_out(world, outcome.planned, plan.seconds)
            timeline.note("run", "no input any more")
            outcome.settle_seconds = settle(world, inputs, outputs[0])
            for slot in world.slots:
                slot.stop()
            _prove_again(world, OTHER_MODE[str(outcome.settings["restore.mode"])])
        _judge(outcome, servers, app_id, place.outcomes)


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


def _prove_again(world: World, mode: str) -> None:
    """A new process restores everything by the mode that was not taken until now: the digests must come out equal."""
    slot = world.slots[0]
    process = slot.start(restore__mode=mode)

    def live() -> bool:
        slot.check()
        return list(process.phases().values()).count("live") == world.partitions

    if not until(live, LIVE_S):
        world.timeline.problem(f"no restore by {mode} in {scaled(LIVE_S):.0f} s: {process.phases()}")
        return
    status = process.get("/restore-status?scope=local")["partitions"]
    for each in status:
        proof = each["proof"]
        if proof is None or not proof["equal"] or proof["batches_compared"] == 0:
            world.timeline.problem(f"restored by {mode} without proof: {each}")
    slot.stop()
    world.timeline.note("run", f"restored by {mode}, {len(status)} digests equal")


def _keep_broker_logs(brokers: ThreeBrokers, logs: Path) -> None:
    for number in range(SIZE):
        shutil.copy(brokers.cluster.node(number).log_path, logs / f"broker-{number}.log")


def _prepare(bootstrap_servers: str, app_id: str, partitions: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make all topics and the genesis; the names of inputs and outputs.

    Again for as long as a broker has not heard of a topic that another one has just made.
    """
    app = checked.make(app_id)
    deadline = time.monotonic() + scaled(PREPARED_S)
    while True:
        try:
            asyncio.run(Stage(bootstrap_servers, app, partitions).prepare())
        except UsageError:
            if time.monotonic() > deadline:
                raise
        else:
            return tuple(t.name for t in app.inputs), tuple(t.name for t in app.outputs)


def _judge(outcome: report.Outcome, bootstrap_servers: str, app_id: str, outcomes: Path) -> None:
    healed_s = scaled(HEALED_S)
    verdict = verify(bootstrap_servers, app_id, outcomes=outcomes, deadline_seconds=healed_s)
    outcome.verdict = str(verdict)
    outcome.counts = dict(sorted(verdict.counts.items()))
    outcome.violations = [str(violation) for violation in verdict.violations]
    outcome.unchecked = verdict.unchecked


SETTLE_S = 120.0
LOOK_S = 0.2
SAY_S = 5.0
STEADY_LOOKS = 3
"""In a row without a finding: a partition may be LIVE twice for a moment after it moved."""


def settle(world: World, inputs: tuple[str, ...], output: str) -> float:
    """Wait until nothing is left to wait for; seconds it took. What is still wrong after two minutes is a problem."""
    began = time.monotonic()
    good, said_at = 0, began
    topics = Names(world.app_id, inputs, output, world.partitions)
    while good < STEADY_LOOKS:
        for slot in world.slots:
            slot.check()
        findings = unsettled(world, topics)
        good = 0 if findings else good + 1
        if findings and time.monotonic() - said_at > SAY_S:
            said_at = time.monotonic()
            world.timeline.note("run", f"not settled: {'; '.join(findings)}")
        if time.monotonic() - began > scaled(SETTLE_S):
            for finding in findings:
                world.timeline.problem(f"{scaled(SETTLE_S):.0f} s after the last fault: {finding}")
            break
        time.sleep(LOOK_S)
    seconds = time.monotonic() - began
    world.timeline.note("run", f"settled after {seconds:.1f} s")
    return seconds


def unsettled(world: World, topics: Names) -> list[str]:
    """Return what is not as it should be once everything is healed and no input comes any more."""
    try:
        # Its own client: a client that has missed a change of leader gets FENCED_LEADER_EPOCH for ever.
        with closing(Logs(world.brokers.bootstrap_servers)) as logs:
            found = troubles(logs, topics, [slot.process.url for slot in world.slots])
    except (KafkaException, LookupError) as error:
        return [f"the cluster or a process does not answer: {error}"]
    return [f"{where}: {what}" for where, what in found]
