"""One history: processes over one broker, events and faults, healing, and the judgement."""

import asyncio
import random
from typing import Any

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.names import place_of_input
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.state.composite import Store
from tests.simulation import by_time, events, program
from tests.simulation.broker import Broker
from tests.simulation.copying import Board, Copies
from tests.simulation.deciding import Decisions
from tests.simulation.ends import begin, begin_late, play
from tests.simulation.faults import Faults
from tests.simulation.feeder import Feeder
from tests.simulation.fleet import Fleet
from tests.simulation.group import Group
from tests.simulation.history import History, View, Violation, is_half_sealed, stored_in
from tests.simulation.loop import VirtualLoop
from tests.simulation.losing import Losses
from tests.simulation.network import NOWHERE, Network
from tests.simulation.oracle import Oracle
from tests.simulation.outside import Outside
from tests.simulation.pausing import Pauses
from tests.simulation.process import Process
from tests.simulation.replacing import LEADS_NOWHERE, REFUSED, Replacement, create_own, fill
from tests.simulation.rewiring import Rewiring
from tests.simulation.scenario import Scenario, instance_id
from tests.simulation.settling import Settling
from tests.simulation.suspecting import Suspicions
from tests.simulation.watch import Watch

# Virtual: by then the last transactions are ended, those that were left open by their timeout.
MARKERS_SECONDS = 3.0

NEED_A_FIX = ("HandlerFailed", "CodeChanged")
"""Why a partition may be FAILED while a hotfix is rolled out; any other reason is a violation."""


class World:
    def __init__(self, loop: VirtualLoop, scenario: Scenario, rng: random.Random) -> None:
        self.loop, self.scenario, self.rng = loop, scenario, rng
        self.broker = Broker(rng, slow_markers=scenario.slow_markers)
        self.network = Network(loop, self.broker, Faults(rng, 5, 4, scenario.faults_apart), rng)
        group = Fleet if scenario.replicas else Group
        self.group: Group = group(self.network, rng, scenario.partitions)
        self.broker.members = self.group.members
        self.decisions: Decisions = Decisions(self)
        self.rewiring: Rewiring = Rewiring(self)
        self.pauses: Pauses = Pauses(self)
        self.feeder = Feeder(self.broker, scenario, rng)
        tried = self.decisions.tried, self.rewiring.tried
        self.oracle = Oracle(self.broker, scenario, *tried, self.pauses, self.feeder.backlog)
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
        self.losses = Losses(self)
        self.settling = Settling(self)
        self.copies = Copies(self)
        self.suspicions: Suspicions = Suspicions(self)
        self.outside = Outside(self)

    # ---------------------------------------------------------- for the processes

    def crashed(self, process: Process) -> None:
        """Somebody starts it again, under the same name."""
        self.group.gone(process)
        self.suspicions.died(process)
        if process in self.processes:
            self.processes.remove(process)
            self.loop.call_later(self.rng.choice((0.05, 0.5, 3.0)), self.replace, process)

    def failed(self, process: Process, status: PartitionStatus) -> None:
        """Do what an operator does about a FAILED partition: retry it, deploy the fix, or nothing, for it must not
        be."""
        kind = status.error.kind if status.error else ""
        if self.epilogue and (kind == "CodeChanged" or status.partition in self.refused):
            return
        if kind in ("StateDisputed", "NotInitialised", *LEADS_NOWHERE) and self.own_replaced:
            self.network.met(f"without a log: {kind}")
            return  # it looks again by itself
        if kind == "NotInitialised" and self.inits_cut > 1:
            self.network.met("init was cut short twice")
            return  # see `beginning.begin`
        if why := self._other_version(process, status.partition, kind):
            self.network.met(why)
            return
        if why := self._refusal(status.partition, kind):
            self.network.met(f"{why}: {kind}")
            self.refused.add(status.partition)
            return
        if kind not in NEED_A_FIX or not self.scenario.poison or self.scenario.dead_letter:
            text = status.error.message if status.error else ""
            self.network.misused(f"{process.name} FAILED partition {status.partition}: {kind}: {text}")
            return
        if (process.name, status.partition) not in self._retried:  # before anything is repaired
            self._retried.add((process.name, status.partition))
            process.soon(process.retry, status.partition)
        self.network.met("hotfix")
        self.version = program.TOLERANT
        for each in list(self.processes):
            if each.app is not self.deployed():
                self.loop.call_later(0.2, each.crash)

    def _other_version(self, process: Process, number: int, kind: str) -> str:
        """Say what makes a version that a log refuses another one than the log has; empty: it must not be refused."""
        if self.decisions.refuses(process, number, kind):
            return "older code refused"
        return "other inputs refused" if self.rewiring.refuses(process, number, kind) else ""

    def _refusal(self, number: int, kind: str) -> str:
        """Say why a partition may be FAILED by this for good; empty: it must not be."""
        if self.losses.explain(number, kind):
            return "said of a loss"
        last = events.last_increment(self, number) if kind in REFUSED else None
        replaced = last is not None and any(each.may_be_refused(number, last) for each in self.replaced)
        return "refused" if replaced else ""

    def start(self, instance_id: str, version: int | None = None, schema: int | None = None) -> Process:
        """A process of the version that is deployed now, unless another one is given."""
        scenario = self.scenario
        self._started += 1
        app = self.deployed(version, schema)
        settings = scenario.settings(instance_id)
        name = f"{instance_id}.{self._started}"
        process = Process(self, name, app, settings, scenario.slice_records)
        process.board = Board(self.copies, process)
        self._watch.attach(process)
        if scenario.replicas:
            process.board.subscribe(lambda status: self.suspicions.look(process))
            process.board.subscribe(lambda status: self.copies.live(process, status))
        self.processes.append(process)
        self.everybody.append(process)
        self.network.trace(name, "starts")
        process.begin()
        return process

    def deployed(self, version: int | None = None, schema: int | None = None, inputs: tuple[str, ...] = ()) -> App[Any]:
        drawn, version, inputs = self.scenario, version or self.version, inputs or self.rewiring.declared
        by_pattern, schema = drawn.appears_at is not None, schema or self.decisions.schema
        variant = {
            **drawn.variant,
            "schema": schema,
            "by_pattern": by_pattern,
            "rekeys": drawn.rekeys,
            "calls": drawn.calls,
            "tables": drawn.tables,
            "broadcast": bool(drawn.broadcast),
        }
        return program.app_of(version, inputs, **variant)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those that are there, or are being replaced."""
        names = program.INPUTS[: self.scenario.inputs]
        return tuple(name for name in names if name in self.broker.ids_of)

    @property
    def internal(self) -> tuple[str, ...]:
        """The internal topics of the app, and the inputs of its table: no event or command takes them away."""
        drawn = self.scenario
        kinds = {program.AGAIN: drawn.rekeys, program.ANSWERS: drawn.calls}
        return (*(topic for topic, is_there in kinds.items() if is_there), *drawn.table_logs)

    def appear(self) -> None:
        """Create the input that is not there yet."""
        for topic in program.INPUTS[: self.scenario.inputs]:
            if topic not in self.broker.ids_of:
                self.broker.create(topic, self.scenario.partitions)
                self.feeder.closed.discard(topic)

    def replace(self, process: Process) -> None:
        there = any(each.instance_id == process.instance_id for each in self.processes)
        if not there and not self.epilogue and not self.ending:
            self.start(process.instance_id)

    # ---------------------------------------------------------- the history

    async def run(self) -> None:
        """Raises Violation: the promise is broken, here is where."""
        scenario = self.scenario
        await self._prepare()
        for number in range(scenario.processes):
            self.start(instance_id(number))
        self.network.faults.active = True
        began = self.loop.time()
        self.feeder.schedule(self.loop, scenario.chaos_seconds)
        for event in scenario.events:
            self.loop.call_at(began + event.at, events.happen, self, event)
        if scenario.appears_at is not None:
            self.loop.call_at(began + scenario.appears_at, self.appear, context=NOWHERE)
        self.losses.schedule(began)
        late = self.loop.create_task(begin_late(self)) if scenario.begins_late else None
        await asyncio.sleep(scenario.chaos_seconds)
        self._heal()
        if late is not None:
            await late
        await self.decisions.settle()
        await self.rewiring.settle()
        await self.settling.until_settled()
        await self.copies.rest()
        if scenario.losses:
            await self.settling.prove()
        self.look()
        await play(self)
        await self.end()

    def judge(self) -> list[History]:
        """Raises Violation."""
        if self.network.violations:
            raise Violation("; ".join(self.network.violations))
        stories = [self._story(number) for number in range(self.scenario.partitions)]
        for story in stories:
            self.network.faults.counts.update(story.met)
            lost = story.came_back or bool(self.losses.parts[story.number])
            self.decisions.judge(story.number, story.decided, lost=lost)
            if story.came_back:
                self.network.met("an aborted batch came back")
                self.refused.add(story.number)
            if story.number not in self.refused:
                self.oracle.check_end(story, self.targets(story.number))
                self.oracle.check_inputs(story)
        pointed = {(s.number, snapshot_id) for s in stories for snapshot_id in s.pointed}
        for number, snapshot_id in self.triggered:
            is_torn = names.transactional_id(program.APP_ID, number) in self.network.broker.torn
            if (number, snapshot_id) not in pointed and not stories[number].came_back and not is_torn:
                raise Violation(f"partition {number}: {snapshot_id} was reported, never pointed to")
        if pointed & self.forged:
            raise Violation(f"forged, and pointed to: {pointed & self.forged}")
        for view in self.views:
            story = stories[view.number]
            if not story.came_back and not self.losses.hides(view.number, view.batch, story):
                view.check(story)
        self.copies.judge(stories)
        return stories

    def _story(self, number: int) -> History:
        """Return the story; what is torn apart by its coordinator is not judged to its end."""
        try:
            return self.oracle.history(number)
        except Violation:
            if not self.losses.tears(number):
                raise
            self.network.met("torn by its coordinator")
            return History(number, by_time.PlainInTime(fat=False, named=False), came_back=True)

    def look(self) -> None:
        """Remember the state of every LIVE partition of everybody, to be judged when the log is read."""
        for process in self.processes:
            for number in process.supervisor.runners if process.supervisor is not None else ():
                self.look_at(process, number)
        self.copies.look()

    def look_at(self, process: Process, number: int) -> None:
        """Remember the state of a partition, if it is LIVE there."""
        runner = process.supervisor.runners.get(number) if process.supervisor is not None else None
        store, status = runner.store if runner is not None else None, process.board.get(number)
        if store is not None and status is not None and status.phase is Phase.LIVE:
            entries = program.shown(store.committed_view())
            view = View(process.name, number, status.batch, entries, stored_in(store))
            self.views.append(view)
            if is_half_sealed(store):
                self.network.met("looked at while it was sealed")

    def targets(self, number: int) -> dict[str, int]:
        """Input topic → offset after its last record."""
        found = {}
        internal = self.internal
        for topic in (*self.inputs, *internal):
            if topic not in (*self.rewiring.declared, *internal):
                continue
            records = self.broker.log(*place_of_input(topic, number)).committed()
            found[topic] = records[-1].offset + 1 if records else 0
        return found

    async def _prepare(self) -> None:
        """Topics and genesis, without faults; the processes find both."""
        scenario = self.scenario
        there = scenario.inputs if scenario.appears_at is None else scenario.inputs - 1
        self.feeder.closed |= set(program.INPUTS[there : scenario.inputs])
        own = (program.OUTPUT, program.INCREMENTS, program.SNAPSHOTS, program.LETTERS)
        for topic in (*program.INPUTS[:there], *own, *self.internal):
            if "/" not in topic:
                self.broker.create(topic, scenario.partitions)
        if scenario.broadcast:
            self.broker.create(program.TABLE, scenario.broadcast)
        if scenario.tables:
            self.feeder.begin_with_backlog(self.loop)
        if not scenario.begins_late:
            await begin(self)

    def _heal(self) -> None:
        """No more faults; the network, the group and suspended processes are back."""
        self.network.trace("world", "heals")
        self.copies.count_again()
        self.healing = True
        self.network.faults.active = False
        self.broker.stale.clear()
        for each in self.replaced:
            fill(self, each)
        for topic in self.own_replaced:
            create_own(self, topic)
        self.appear()
        self.feeder.finish()
        events.end_foreign(self)
        self.losses.settle()
        self.pauses.end_all()
        for process in list(self.processes):
            process.wake()
            if self._replaced(process) or process.app.schema_version < self.decisions.schema:
                process.crash()
        if not self.processes:
            self.start("a")
        self.group.heal(self.processes)

    def _replaced(self, process: Process) -> bool:
        return any(
            each.instance_id == process.instance_id and each is not process
            for each in self.processes[self.processes.index(process) + 1 :]
        )

    def store_of(self, number: int) -> Store | None:
        owner = self.group.owner(number)
        supervisor = owner.supervisor if owner is not None else None
        runner = supervisor.runners.get(number) if supervisor is not None else None
        return runner.store if runner is not None else None

    async def end(self) -> None:
        """A graceful stop; nothing may be left of anybody."""
        self.ending = True
        for process in list(self.processes):
            stopping = process.spawn(process.stop(last_snapshot=self.scenario.last_snapshot))
            await asyncio.wait([stopping])
            self.group.forget(process)
            if process in self.processes:  # else a crash that was under way came first
                self.processes.remove(process)
            if not process.dead and (left := process.left_over or process.broken):
                raise Violation(f"{process.name} left tasks over, or runners failed: {left}")
        await asyncio.sleep(MARKERS_SECONDS)
        self.judge()
