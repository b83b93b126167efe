"""The judgement of warm copies: each has what was committed, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from snapreplay.app import names
from snapreplay.service.control.state_reads import BatchUnderWay, NotReadable
from snapreplay.service.control.status import PartitionStatus, StandbyStatus, StatusBoard
from snapreplay.service.core.assignment import Holding
from snapreplay.service.core.phase import Phase
from snapreplay.snapshots.format.records import Claim, Increment
from tests.simulation import program, told
from tests.simulation.history import History, View, Violation, require, stored_in
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process
from tests.simulation.program import INCREMENTS

if TYPE_CHECKING:
    from tests.simulation.world import World

MOVES_HEALING_MAX, MOVES_SETTLED_MAX = 12, 3
"""Of a partition: until all are LIVE after the healing, and from then on until it is where it is to be. An owner that
was stalled does not know before its next heartbeat that the group has another one, and takes the partition back until
then: two of them, about four times a second. The holder of the only copy of a state comes back once to write it. One
takeover is a part of that; what others move is moved back."""
REST_SECONDS, RESTS_MAX = 6.0, 5
"""Virtual: once all are LIVE, copies are loaded, and partitions move to them. Who was fenced and has no input finds it
out later. After some such times nothing moves any more."""


class Board(StatusBoard):
    """A status board that tells of copies, too."""

    def __init__(self, copies: Copies, process: Process) -> None:
        super().__init__()
        self._copies, self._process = copies, process

    def publish_standby(self, partition: int, status: StandbyStatus | None) -> None:
        super().publish_standby(partition, status)
        if status is not None and not self._process.dead:
            self._copies.seen(self._process, status)


class Copies:
    """The copies of all processes: what they say while the history runs, and what they held, for its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: set[tuple[str, int, int, str]] = set()
        self._views: list[View] = []
        self._since = 0.0

    def seen(self, process: Process, status: StandbyStatus) -> None:
        """Check that a copy is of a committed batch."""
        network, number = self._world.network, status.partition
        network.met(f"copy {status.state}")
        if status.error is not None:
            network.met(f"copy {status.state}: {status.error.kind}")
        if status.state != "warm" or status.batch is None:
            return
        key = (process.name, number, status.batch, str(status.digest))
        if key in self._known or names.transactional_id(program.APP_ID, number) in network.broker.torn:
            return
        self._known.add(key)
        network.trace(process.name, f"has a copy of partition {number} batch {status.batch}")
        network.met(f"copy by {self._world.scenario.mode}")
        ids = network.broker.ids_of[INCREMENTS]
        written = (each for id_ in ids for each, _ in told.ever(network.broker.by_id[id_][number]))
        batches = [each for each in written if isinstance(each, Increment) and each.batch == status.batch]
        if not any(status.digest == str(each.digest) for each in batches):
            network.misused(f"{process.name} copies batch {status.batch} of partition {number}: it was never committed")

    def live(self, process: Process, status: PartitionStatus) -> None:
        """Remember what a recovery made of a copy."""
        restore, key = status.restore, (process.name, status.partition, status.owner_epoch or 0, "live")
        if status.phase is Phase.LIVE and restore is not None and restore.warm == "copied" and key not in self._known:
            self._known.add(key)
            self._world.network.met("live from a copy")
            self._world.loop.call_soon(self._world.look_at, process, status.partition, context=NOWHERE)

    def look(self) -> None:
        """Remember what the copies hold."""
        for process in self._world.processes:
            standbys = process.supervisor.standbys if process.supervisor is not None else None
            for number in standbys.held if standbys is not None else ():
                try:
                    found = standbys.readable(number) if standbys is not None else None
                except (NotReadable, BatchUnderWay):
                    continue
                if found is not None:
                    entries = program.shown(found.store.committed_view())
                    what = f"{process.name}, a copy,"
                    self._views.append(View(what, number, found.last.batch, entries, stored_in(found.store)))
                    self._world.network.met("looked at a copy")

    def count_again(self) -> None:
        """Count the moves from now on: what ended before made some necessary."""
        self._since = self._world.loop.time()

    async def rest(self) -> None:
        """Wait until all copies are warm. Raises Violation: something still moves, is copied nowhere, or is owned by
        one process too many."""
        world = self._world
        self._count_moves(MOVES_HEALING_MAX)
        if self._is_refused():
            return
        numbers = range(world.scenario.partitions)
        self._since = world.loop.time()
        for _ in range(RESTS_MAX):
            before = [self._owners(number) for number in numbers], self._warm()
            is_whole = not any(each.stalled for each in world.processes)
            await asyncio.sleep(REST_SECONDS)
            if is_whole and before == ([self._owners(number) for number in numbers], self._warm()):
                break
        else:
            raise Violation(f"nothing happens, and partitions move: {list(map(self._owners, numbers))}")
        self._count_moves(MOVES_SETTLED_MAX)
        await world.settling.until_settled()
        if self._is_refused():  # an owner may have noticed only now
            return
        owned = [len(each.owned) for each in self._held()]
        require(max(owned) - min(owned) <= 1, f"uneven: {owned}")
        copies, warm = min(world.scenario.replicas, len(owned) - 1), self._warm()
        require(warm == [copies] * len(warm), f"warm copies: {warm}, not {copies} of each partition")
        world.network.met("balanced, and all copies are warm")

    def _is_refused(self) -> bool:
        world = self._world
        has_lost = any(world.losses.parts.values()) or bool(world.own_replaced)
        return not world.scenario.replicas or bool(world.refused) or has_lost

    def _held(self) -> list[Holding]:
        return [each.supervisor.holding for each in self._world.processes if each.supervisor is not None]

    def _warm(self) -> list[int]:
        """Return how many warm copies each partition has."""
        warm = Counter(number for each in self._held() for number in each.warm)
        return [warm[number] for number in range(self._world.scenario.partitions)]

    def _count_moves(self, most: int) -> None:
        takeovers = Counter(number for at, number in self._world.suspicions.takeovers if at > self._since)
        for number in range(self._world.scenario.partitions):
            moves = len(self._owners(number)) - 1
            allowed = most + 2 * max(0, takeovers[number] - 1)
            require(moves <= allowed, f"partition {number} moved {moves} times since {self._since:.1f}")

    def _owners(self, number: int) -> list[str]:
        """Return who has owned a partition since then, one after the other; the first one from before. A client that
        claims it for a decision does not keep it."""
        owners = [""]
        for entry, written in told.ever(self._world.broker.log(INCREMENTS, number)):
            if not isinstance(entry, Claim) or entry.process_id == owners[-1]:
                continue
            if entry.instance_id.startswith("snapreplay-"):
                continue
            is_before = written.record.timestamp <= self._since * 1000
            owners = [entry.process_id] if is_before else [*owners, entry.process_id]
        return owners

    def judge(self, stories: list[History]) -> None:
        """Raises Violation: a copy was not what the log has, or a partition finds no peace."""
        for view in self._views:
            if not stories[view.number].came_back:
                view.check(stories[view.number])
