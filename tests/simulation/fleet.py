"""The group of processes with standbys: the product's assignor, over what each process says of itself when it joins.

In a rebalance everybody joins again, and until then the coordinator gives nothing to anybody. Who does not join is
waited for until its session ends, or until the rebalance times out: then what it said before counts.
"""

import asyncio
import random
import zlib

from snapreplay.service.core.assignment import Introductions, Member, Share, assigned, peers_of
from snapreplay.service.core.peers import Peer
from tests.simulation.group import HEARTBEAT_SECONDS, Group
from tests.simulation.network import NOWHERE, Network
from tests.simulation.process import Process

AGAIN_SECONDS = 0.1
HAND_OVER_SECONDS = 5.0
STALE_JOIN_SHARE = 0.3
TIMEOUTS_SECONDS = (0.8, 5.0)
"""Of a rebalance: shorter and longer than a session."""


class Fleet(Group):
    """A group whose members say what they hold, as `Membership` lets them."""

    def __init__(self, network: Network, rng: random.Random, partitions: int) -> None:
        super().__init__(network, rng, partitions)
        self._said: dict[str, Member] | None = None  # in a rebalance: who has joined again
        self._said_before: dict[str, Member] = {}
        self._timeout_seconds = rng.choice(TIMEOUTS_SECONDS)
        self._generation = 0
        self._heard: dict[str, int] = {}  # by name of the process: the last generation that it is of
        self._shares: dict[str, Share] = {}
        self._asks: dict[str, int] = {}  # by name of the process
        self._told_asks: dict[str, int] = {}
        self._leaving: dict[str, asyncio.Future[None]] = {}
        self._told_leaving: set[str] = set()
        self._introductions: dict[str, Introductions] = {}
        self._drained: set[str] = set()  # names of processes
        self.racks: dict[str, str] = {}
        """By instance id; whoever is not in it is on one of two."""

    def join(self, process: Process) -> None:
        if self._said is None:
            if process.instance_id in self.assignment:
                self._heard[process.name] = self._generation
            super().join(process)
            return
        self._said.pop(process.instance_id, None)
        self.members[process.instance_id] = process
        if process not in self._joined:
            self._joined.append(process)
        self._join_soon(process)

    def leave(self, process: Process) -> None:
        is_member = self.members.get(process.instance_id) is process
        super().leave(process)
        if is_member:
            self._said_before.pop(process.instance_id, None)
            self._heard.pop(process.name, None)
        if is_member and self._said is not None:
            self._said.pop(process.instance_id, None)
            self._complete()

    def forget(self, process: Process) -> None:
        self.leave(process)

    def reset(self) -> None:
        super().reset()
        self._said_before.clear()
        self._heard.clear()
        self._shares.clear()
        self._said = None

    def rebalance(self) -> None:
        self._due = False
        if self._said is None and self.members:
            self._said = {}
            self._network.loop.call_later(self._timeout_seconds, self._time_out, self._generation, context=NOWHERE)
            for process in self.members.values():
                self._join_soon(process)

    def rejoin(self, process: Process) -> None:
        """Assign again, by what each process holds then."""
        self._asks[process.name] = self._asks.get(process.name, 0) + 1
        self._ask(process)

    async def hand_over(self, process: Process) -> bool:
        """Have the partitions given away, as a process asks that is about to stop. Say whether they all are."""
        if self._is_deaf(process) or not self.assignment.get(process.instance_id):
            return False
        given = self._leaving[process.name] = self._network.loop.create_future()
        self.rejoin(process)
        await asyncio.wait([given], timeout=HAND_OVER_SECONDS)
        is_left = process.supervisor is not None and process.supervisor.taken_over
        return not self._is_deaf(process) and not self.assignment.get(process.instance_id) and not is_left

    def drain(self, process: Process, seconds: float) -> None:
        """Have all partitions of the process given away, and none given to it, until it is undrained."""
        self._drained.add(process.name)
        self.rejoin(process)
        self._later(seconds, process, self._undrain)

    def heal(self, alive: list[Process]) -> None:
        super().heal(alive)
        for process in alive:
            self._undrain(process)

    def _undrain(self, process: Process) -> None:
        if process.name in self._drained:
            self._drained.discard(process.name)
            self.rejoin(process)

    def gives(self, process: Process, partition: int) -> bool:
        return super().gives(process, partition) and self._said is None

    def _is_deaf(self, process: Process) -> bool:
        return process.name in self._cut or process.stepped_down

    def _ask(self, process: Process) -> None:
        if process.dead or self.members.get(process.instance_id) is not process:
            return
        if self._is_deaf(process):
            self._later(AGAIN_SECONDS, process, self._ask)
        elif self._said is None:
            self._rebalance_soon()

    def _join_soon(self, process: Process) -> None:
        self._later(HEARTBEAT_SECONDS * self._rng.random(), process, self._joins)

    def _joins(self, process: Process) -> None:
        is_member = self.members.get(process.instance_id) is process
        if not is_member or process.dead or (self._said is not None and process.instance_id in self._said):
            return
        if process.stalled or self._is_deaf(process) or process.supervisor is None:
            self._later(AGAIN_SECONDS, process, self._joins)
            return
        if self._said is None:
            if self._heard.get(process.name) != self._generation:  # it continued without this one
                self._rebalance_soon()
            return
        held, asks = process.supervisor.holding, self._asks.get(process.name, 0)
        self._told_asks[process.name] = asks
        if process.name in self._leaving:
            self._told_leaving.add(process.name)
        me = process.identity
        self._said[process.instance_id] = Member(
            held.owned,
            held.warm - held.owned,
            held.replicas,
            rack=self._rack_of(process.instance_id),
            is_leaving=process.name in self._leaving or process.name in self._drained,
            epochs=dict(held.epochs),
            peer=Peer(me.process_id, me.instance_id, process.name, ""),
            asks=asks,
            generation=self._known_generation(process),
            lags=dict(held.lags),
        )
        self._complete()

    def _rack_of(self, instance_id: str) -> str:
        drawn = f"r{zlib.crc32(instance_id.encode()) % 2}"
        return self.racks.get(instance_id, drawn)

    def _known_generation(self, process: Process) -> int:
        """Return the last one that a process was of, as it knows: a heartbeat has told it that there was a later one,
        or its request to join is an older one."""
        known = self._heard.get(process.name, -1)
        return known if known == self._generation or self._rng.random() < STALE_JOIN_SHARE else -1

    def _time_out(self, generation: int) -> None:
        if self._generation == generation and self._said is not None:
            joined = frozenset(self._said)
            self._said = {name: each for name, each in self._said_before.items() if name in self.members} | self._said
            self._network.met("rebalance that timed out")
            self._assign(joined)

    def _complete(self) -> None:
        """Assign when everybody is there."""
        if self._said is not None and self._said.keys() == self.members.keys():
            self._assign(frozenset(self._said))

    def _assign(self, joined: frozenset[str]) -> None:
        """Assign by what was said, and tell those who have joined."""
        said = self._said or {}
        self._said, self._said_before = None, said
        self._generation += 1
        if not said:  # an empty group knows no member: who joins is given something by a rebalance
            self.assignment, self._shares = {}, {}
            return
        shares = assigned(said, () if self.topic_is_gone else range(self._partitions))
        peers = peers_of(said, shares)
        leaving = [name for name, each in said.items() if each.is_leaving]
        absent = next(iter(shares.values())).absent
        stays = [
            name
            for name, each in said.items()
            if not each.is_leaving and (each.peer is None or each.peer.process_id not in absent)
        ]
        if leaving and stays:
            self._network.met("assigned beside one that gives away")
            if any(shares[name].owned or shares[name].copies for name in leaving):
                self._network.misused(f"{leaving} give everything away, and are given something: {shares}")
        self._shares = {
            name: Share(each.owned, each.copies, each.next, each.first, peers, each.claimed, each.absent)
            for name, each in shares.items()
        }
        self.assignment = {name: set(each.owned) for name, each in shares.items()}
        self._network.trace("group", f"assigns {self.assignment}")
        for process in self.members.values():
            if process.instance_id in joined:
                self._heard[process.name] = self._generation
                self._tell(process)

    def _hears(self, process: Process) -> None:
        name = process.instance_id
        if self.members.get(name) is not process or name not in self._shares:
            return
        if self._is_deaf(process):
            self._later(AGAIN_SECONDS, process, self._hears)
            return
        process.soon(process.assigned, set(self.assignment[name]), self._shares[name])
        given = self._leaving.get(process.name)
        if given is not None and process.name in self._told_leaving and not given.done():
            given.set_result(None)
        introductions = self._introductions.setdefault(process.name, Introductions())
        if introductions.is_due(process.identity.process_id, self._shares[name]):
            self._asks[process.name] = self._asks.get(process.name, 0) + 1
        if self._told_asks.get(process.name, 0) < self._asks.get(process.name, 0):
            self._ask(process)
