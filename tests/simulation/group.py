"""The group's coordinator: static members, sessions, rebalances whose news reach members at different times."""

import random

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.owners import SteppedDown
from tests.simulation.network import NOWHERE, Network
from tests.simulation.process import Process

SESSION_SECONDS = 1.5
REBALANCE_SECONDS = 0.1
HEARTBEAT_SECONDS = 0.3
NEWS_SECONDS = 0.3
"""At most this long until a member hears of its new assignment: the old and the new owner overlap."""


class Group:
    """The group that knows who owns what. Members are known by instance id: a restarted one gets its partitions
    back at once."""

    def __init__(self, network: Network, rng: random.Random, partitions: int) -> None:
        self._network, self._rng = network, rng
        self._partitions = partitions
        self.members: dict[str, Process] = {}
        self.assignment: dict[str, set[int]] = {}
        self._joined: list[Process] = []
        self._cut: set[str] = set()
        self.topic_is_gone = False
        """The topic of all members was deleted: then no member is given anything."""
        self._due = False

    def join(self, process: Process) -> None:
        """A second process of the same name replaces the first, who is not told."""
        known = process.instance_id in self.assignment
        self.members[process.instance_id] = process
        if process not in self._joined:
            self._joined.append(process)
        if known:
            self._tell(process)
        else:
            self._rebalance_soon()

    def leave(self, process: Process) -> None:
        if self.members.get(process.instance_id) is process:
            del self.members[process.instance_id]
            self._rebalance_soon()
            for other in self._joined:  # whom it has replaced hears with its next heartbeat that it is no member
                if other.instance_id == process.instance_id and other is not process:
                    self._later(HEARTBEAT_SECONDS, other, self._join_again)

    def forget(self, process: Process) -> None:
        """Let a member go, and tell no other: the history is at its end."""
        self.members.pop(process.instance_id, None)

    def reset(self) -> None:
        """Forget who was given what."""
        self.assignment.clear()

    def hears(self, process: Process) -> bool:
        """Say whether the process is a member, as far as it knows."""
        return self.members.get(process.instance_id) is process and process.name not in self._cut

    def rejoin(self, process: Process) -> None:
        """Do nothing: what this group assigns does not depend on what a process holds."""

    def drain(self, process: Process, seconds: float) -> None:
        """Do nothing: as `rejoin`."""

    async def hand_over(self, process: Process) -> bool:
        """Say whether a process that is about to stop has given its partitions away; here they stay until it leaves."""
        return False

    def rebalance(self) -> None:
        self._due = False
        names = sorted(self.members)
        self.assignment = {name: set() for name in names}
        self._rng.shuffle(names)
        for number in range(self._partitions):
            if names and not self.topic_is_gone:
                self.assignment[names[number % len(names)]].add(number)
        self._network.trace("group", f"assigns {self.assignment}")
        for process in self.members.values():
            self._tell(process)

    def silent(self, process: Process, seconds: float) -> None:
        """No heartbeat for `seconds`: expelled after the session; it joins again when it is back."""
        if seconds > SESSION_SECONDS:
            self._later(SESSION_SECONDS, process, self._expel)
            self._later(seconds + 0.1, process, self._join_again)

    def stand_aside(self, process: Process) -> None:
        """It goes without a word, for the name is another's now, and looks whether that one is gone."""
        if self.members.get(process.instance_id) is process:
            self._later(SESSION_SECONDS, process, self._expel)
        self._look_again(process, SteppedDown(SESSION_SECONDS))

    def gone(self, process: Process) -> None:
        self._later(SESSION_SECONDS, process, self._expel)

    def cut(self, process: Process, seconds: float) -> None:
        """The process reaches every broker but the coordinator."""
        self._cut.add(process.name)
        self.silent(process, seconds)
        self._later(seconds, process, lambda whose: self._cut.discard(whose.name))

    def heal(self, alive: list[Process]) -> None:
        """Everybody reaches the coordinator; who was expelled, or replaced by one that is gone, joins again."""
        self._cut.clear()
        for process in alive:
            self._later(SESSION_SECONDS + REBALANCE_SECONDS, process, self._join_again)

    def gives(self, process: Process, partition: int) -> bool:
        """Raises Unreachable: it is cut off from the coordinator."""
        if process.name in self._cut:
            raise Unreachable("the coordinator does not answer")
        name = process.instance_id
        return self.members.get(name) is process and partition in self.assignment.get(name, ())

    def owner(self, partition: int) -> Process | None:
        for name, partitions in self.assignment.items():
            if partition in partitions:
                return self.members.get(name)
        return None

    def topic_changed(self, *, gone: bool) -> None:
        """Members notice it with their metadata."""
        self.topic_is_gone = gone
        self._rebalance_soon()

    def _rebalance_soon(self) -> None:
        """One for all who come and go at about the same time."""
        if not self._due:
            self._due = True
            self._network.loop.call_later(REBALANCE_SECONDS, self._if_due, context=NOWHERE)

    def _if_due(self) -> None:
        if self._due:
            self.rebalance()

    def _later(self, seconds: float, process: Process, what: object) -> None:
        self._network.loop.call_later(seconds, what, process, context=NOWHERE)  # type: ignore[arg-type]  # takes a process

    def _expel(self, process: Process) -> None:
        deaf = process.stalled or process.name in self._cut
        if process.dead or process.stepped_down or deaf:
            self.leave(process)

    def _join_again(self, process: Process) -> None:
        if process.dead or process.stepped_down or process.stopping or process.supervisor is None:
            return
        if process.stalled or process.name in self._cut:
            self._later(0.1, process, self._join_again)
        elif process.instance_id not in self.members:
            self.join(process)

    def _look_again(self, process: Process, aside: SteppedDown) -> None:
        self._later(aside.pause_seconds, process, lambda whose: self._look(whose, aside))

    def _look(self, process: Process, aside: SteppedDown) -> None:
        if process.dead or process.stopping:
            return
        deaf = process.stalled or process.name in self._cut
        aside = aside.looked(there=None if deaf else process.instance_id in self.members)
        if not aside.over:
            self._look_again(process, aside)
            return
        process.comes_back()
        self.join(process)

    def _tell(self, process: Process) -> None:
        self._later(NEWS_SECONDS * self._rng.random(), process, self._hears)

    def _hears(self, process: Process) -> None:
        name = process.instance_id
        if self.members.get(name) is process and name in self.assignment:
            process.soon(process.assigned, set(self.assignment[name]))
