"""One history: processes over one broker, events and faults, healing, and the judgement."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.service import clock
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.service.live import pipeline
from snapreplay.service.ports import TopicPartition
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery import replay
from snapreplay.service.runtime import cooperative
from snapreplay.state import shards, staging
from snapreplay.state.composite import CompositeStore
from snapreplay.state.contract import Store
from snapreplay.state.mapstore import MapStore
from snapreplay.state.shards import Shards
from tests.simulation import events, program
from tests.simulation.beginning import begin, begin_late
from tests.simulation.broker import Broker
from tests.simulation.epilogue import play
from tests.simulation.faults import Faults
from tests.simulation.feeder import Feeder
from tests.simulation.group import Group
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network
from tests.simulation.oracle import History, Oracle, Violation
from tests.simulation.process import Process, seeded_uuid
from tests.simulation.replacing import LEADS_NOWHERE, REFUSED, Replacement, create_own, fill
from tests.simulation.scenario import EPOCH_SECONDS, Scenario
from tests.simulation.view import View, stored_in
from tests.simulation.watch import Watch

# Virtual: an owner that lost its partition several times in a row stands back for up to a minute.
HEALED_SECONDS = 150.0
# Virtual: by then the last transactions are ended, those that were left open by their timeout.
MARKERS_SECONDS = 3.0

NEED_A_FIX = ("HandlerFailed", "CodeChanged")
"""Why a partition may be FAILED while a hotfix is rolled out; any other reason is a violation."""
SMALL = (8,)  # shards of a map, instead of 1024: a snapshot visits each of them


class World:
    """Everything of one seed."""

    def __init__(self, loop: VirtualLoop, scenario: Scenario, rng: random.Random) -> None:
        self.loop, self.scenario, self.rng = loop, scenario, rng
        self.broker = Broker(rng, slow_markers=scenario.slow_markers)
        self.network = Network(loop, self.broker, Faults(rng, 5, 4), rng)
        self.group = Group(self.network, rng, scenario.partitions)
        self.broker.members = self.group.members
        self.oracle = Oracle(self.broker, scenario)
        self.processes: list[Process] = []
        self.healing = False
        self.epilogue = False
        self.ending = False
        self.version = program.GOOD
        self.everybody: list[Process] = []
        self.triggered: list[tuple[int, str]] = []
        self.replaced: list[Replacement] = []
        self.own_replaced: list[str] = []
        self.refused: set[int] = set()
        """Partitions that are FAILED, as they should be: an input is not the log that was processed."""
        self._watch = Watch(self.network, self.failed)
        self._started = 0
        self.inits_cut = 0
        self._retried: set[tuple[str, int]] = set()
        self.views: list[View] = []
        self.forged: set[tuple[int, str]] = set()
        self.feeder = Feeder(self.broker, scenario, rng)

    # ---------------------------------------------------------- for the processes

    def crashed(self, process: Process) -> None:
        """Somebody starts it again, under the same name."""
        self.group.gone(process)
        if process in self.processes:
            self.processes.remove(process)
            self.loop.call_later(self.rng.choice((0.05, 0.5, 3.0)), self.replace, process)

    def failed(self, process: Process, status: PartitionStatus) -> None:
        """What an operator does about a FAILED partition: retry it, deploy the fix, or nothing, for it must not be."""
        kind = status.error.kind if status.error else ""
        if self.epilogue and kind == "CodeChanged":
            return
        if kind in ("StateDisputed", "NotInitialised", *LEADS_NOWHERE) and self.own_replaced:
            self.network.met(f"without a log: {kind}")
            return  # it looks again by itself
        if kind == "NotInitialised" and self.inits_cut > 1:
            self.network.met("init was cut short twice")
            return  # see `beginning.begin`
        if kind in REFUSED and self._may_be_refused(status.partition):
            self.network.met(f"refused: {kind}")
            self.refused.add(status.partition)
            return
        if kind not in NEED_A_FIX or not self.scenario.poison or self.scenario.dead_letter:
            text = status.error.message if status.error else ""
            self.network.misused(
                f"{process.name} FAILED partition {status.partition}: {kind}: {text}"
            )
            return
        if (process.name, status.partition) not in self._retried:  # before anything is repaired
            self._retried.add((process.name, status.partition))
            process.soon(process.retry, status.partition)
        self.network.met("hotfix")
        self.version = program.TOLERANT
        for each in list(self.processes):
            if each.app is not self.deployed():
                self.loop.call_later(0.2, each.crash)

    def _may_be_refused(self, number: int) -> bool:
        last = events.last_increment(self, number)
        return last is not None and any(each.may_be_refused(number, last) for each in self.replaced)

    def start(self, instance_id: str, version: int | None = None) -> Process:
        """A process of the version that is deployed now."""
        scenario = self.scenario
        self._started += 1
        app = self.deployed(version)
        settings = scenario.settings(instance_id)
        name = f"{instance_id}.{self._started}"
        process = Process(self, name, app, settings, scenario.slice_records)
        self._watch.attach(process)
        self.processes.append(process)
        self.everybody.append(process)
        self.network.trace(name, "starts")
        process.begin()
        return process

    def deployed(self, version: int | None = None) -> App[Any]:
        drawn, version = self.scenario, version or self.version
        return program.app_of(version, drawn.inputs, **drawn.variant)

    def replace(self, process: Process) -> None:
        """Unless somebody of its name is back already."""
        there = any(each.instance_id == process.instance_id for each in self.processes)
        if not there and not self.epilogue and not self.ending:
            self.start(process.instance_id)

    # ---------------------------------------------------------- the history

    async def run(self) -> None:
        """
        Raises:
            Violation: the promise is broken, here is where.
        """
        scenario = self.scenario
        await self._prepare()
        for number in range(scenario.processes):
            self.start("abc"[number])
        self.network.faults.active = True
        began = self.loop.time()
        self.feeder.schedule(self.loop, scenario.chaos_seconds)
        for event in scenario.events:
            self.loop.call_at(began + event.at, events.happen, self, event)
        late = self.loop.create_task(begin_late(self)) if scenario.begins_late else None
        await asyncio.sleep(scenario.chaos_seconds)
        self._heal()
        if late is not None:
            await late
        await self._until_healed()
        self.look()
        await play(self)
        await self._end()

    def judge(self) -> list[History]:
        """
        Raises:
            Violation.
        """
        if self.network.violations:
            raise Violation("; ".join(self.network.violations))
        stories = [self.oracle.history(number) for number in range(self.scenario.partitions)]
        for story in stories:
            self.network.faults.counts.update(story.met)
            if story.number not in self.refused:
                self.oracle.check_end(story, self.targets(story.number))
        pointed = {(s.number, snapshot_id) for s in stories for snapshot_id in s.pointed}
        for number, snapshot_id in self.triggered:
            if (number, snapshot_id) not in pointed:
                raise Violation(f"partition {number}: {snapshot_id} was reported, never pointed to")
        if pointed & self.forged:
            raise Violation(f"forged, and pointed to: {pointed & self.forged}")
        for view in self.views:
            view.check(stories[view.number])
        return stories

    def look(self) -> None:
        """Remember the state of every LIVE partition of everybody, to be judged when the log is read."""
        for process in self.processes:
            runners = process.supervisor.runners if process.supervisor is not None else {}
            for number, runner in runners.items():
                store, status = runner.store, process.board.get(number)
                if store is not None and status is not None and status.phase is Phase.LIVE:
                    entries = program.shown(store.committed_view())
                    view = View(process.name, number, status.batch, entries, stored_in(store))
                    self.views.append(view)
                    if _is_half_sealed(store):
                        self.network.met("looked at while it was sealed")

    def targets(self, number: int) -> dict[str, int]:
        """Input topic → offset after its last record."""
        found = {}
        for topic in program.INPUTS[: self.scenario.inputs]:
            records = self.broker.logs[TopicPartition(topic, number)].committed()
            found[topic] = records[-1].offset + 1 if records else 0
        return found

    async def _prepare(self) -> None:
        """Topics and genesis, without faults; the processes find both."""
        scenario = self.scenario
        own = (
            names.increments_topic(program.APP_ID),
            names.snapshots_topic(program.APP_ID),
            names.dead_letters_topic(program.APP_ID),
        )
        for topic in (*program.INPUTS[: scenario.inputs], program.OUTPUT, *own):
            self.broker.create(topic, scenario.partitions)
        if not scenario.begins_late:
            await begin(self)

    def _heal(self) -> None:
        """No more faults; the network, the group and whoever stood still are back."""
        self.network.trace("world", "heals")
        self.healing = True
        self.network.faults.active = False
        self.broker.stale.clear()
        for each in self.replaced:
            fill(self, each)
        for topic in self.own_replaced:
            create_own(self, topic)
        self.feeder.finish()
        events.end_foreign(self)
        for process in list(self.processes):
            process.wake()
            if self._replaced(process):
                process.crash()
        if not self.processes:
            self.start("a")
        self.group.heal(self.processes)

    def _replaced(self, process: Process) -> bool:
        return any(
            each.instance_id == process.instance_id and each is not process
            for each in self.processes[self.processes.index(process) + 1 :]
        )

    async def _until_healed(self) -> None:
        targets = [self.targets(number) for number in range(self.scenario.partitions)]
        began = self.loop.time()
        while not (
            all(self._settled(number, targets[number]) for number in range(len(targets)))
            and self.quiet
        ):
            if self.network.violations:
                raise Violation("; ".join(self.network.violations))
            if self.loop.time() > began + HEALED_SECONDS:
                raise Violation(f"not healed after {HEALED_SECONDS} s: {self._phases()}")
            await asyncio.sleep(0.05)
        self.network.trace("world", f"healed after {self.loop.time() - began:.1f} s")

    @property
    def quiet(self) -> bool:
        """No transaction is open, all markers are written: LSO = HW everywhere."""
        return all(log.stable == log.end for log in self.broker.logs.values())

    def _settled(self, number: int, targets: dict[str, int]) -> bool:
        """LIVE exactly where it is assigned, all consumed and in today's log."""
        owner = self.group.owner(number)
        if self.own_replaced and not events.is_written(self, number):
            return False
        for process in self.processes:
            status = process.board.get(number)
            if process is not owner:
                if status is not None:
                    return False
                continue
            if status is not None and status.phase is Phase.FAILED and number in self.refused:
                continue
            if status is None or status.phase is not Phase.LIVE:
                return False
            if self.store_of(number) is None:
                return False
            positions = {each.topic: each.position for each in status.inputs}
            if any(positions.get(topic, -1) < target for topic, target in targets.items()):
                return False
        return owner is not None and owner in self.processes

    def _phases(self) -> str:
        found = [
            f"{process.name}: {status.partition} {status.phase.value} {status.error} {status.inputs}"
            for process in self.processes
            for status in process.board.all()
        ]
        loud = [
            f"{log.partition}: {log.view}"
            for log in self.broker.logs.values()
            if log.stable < log.end
        ]
        targets = [self.targets(number) for number in range(self.scenario.partitions)]
        return f"{self.group.assignment}, {loud}, {targets}, " + "; ".join(found)

    def store_of(self, number: int) -> Store | None:
        """The state of the owner; None unless it is LIVE."""
        owner = self.group.owner(number)
        supervisor = owner.supervisor if owner is not None else None
        runner = supervisor.runners.get(number) if supervisor is not None else None
        return runner.store if runner is not None else None

    async def _end(self) -> None:
        """A graceful stop; nothing may be left of anybody."""
        self.ending = True
        for process in list(self.processes):
            stopping = process.spawn(process.stop(final_snapshot=self.scenario.final_snapshot))
            await asyncio.wait([stopping])
            self.group.members.pop(process.instance_id, None)
            if process in self.processes:  # else a crash that was under way came first
                self.processes.remove(process)
            if not process.dead and (left := process.left_over or process.broken):
                raise Violation(f"{process.name} left tasks over, or runners failed: {left}")
        await asyncio.sleep(MARKERS_SECONDS)
        self.judge()


@contextmanager
def slow_steps(world: World) -> Iterator[None]:
    """After each step of work on a batch or a snapshot there is time for something else."""

    async def pause() -> None:
        await asyncio.sleep(world.rng.choice((0.0, 0.001, 0.02)))

    def counted(module: ModuleType) -> Callable[[Any], Awaitable[Any]]:
        async def in_steps(steps: Any) -> Any:
            world.network.met(f"{module.__name__.rpartition('.')[2]}: {steps.__name__} in steps")
            return await cooperative.run_cooperatively(steps)

        return in_steps

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(cooperative, "YIELD_AFTER_SECONDS", -1))
        stack.enter_context(mock.patch.object(cooperative, "pause", pause))
        for module in (pipeline, replay, snapshot_writer):
            stack.enter_context(mock.patch.object(module, "run_cooperatively", counted(module)))
        yield


def _is_half_sealed(store: Any) -> bool:
    for each in getattr(store, "_maps", {"": store}).values():
        undo = each._shards._undo
        if undo is not None and undo.places is each._staged_places:
            return True
    return False


@contextmanager
def seeded(world: World) -> Iterator[None]:
    """Ids, wall time and length of the steps of a seed; small maps and patient idle loops, for speed."""
    loop, rng = world.loop, world.rng
    wall = SimpleNamespace(
        time=lambda: EPOCH_SECONDS + loop.time(),
        time_ns=lambda: int((EPOCH_SECONDS + loop.time()) * 1e9),
    )
    with (
        mock.patch("uuid.uuid4", seeded_uuid(rng)),
        mock.patch.object(clock, "time", wall),
        mock.patch.object(pipeline, "IDLE_POLL_MS", 400),
        mock.patch.object(pipeline, "POLLED_RECORDS", 2),
        mock.patch.object(Shards.__init__, "__defaults__", SMALL),
        mock.patch.object(MapStore.clear, "__defaults__", SMALL),
        mock.patch.object(CompositeStore.clear, "__defaults__", SMALL),
        mock.patch.object(shards, "BLOCK", 1),
        mock.patch.object(staging, "BLOCK", 1),
        slow_steps(world) if world.scenario.slow_steps else nullcontext(),
    ):
        yield
