"""The drain of a process before maintenance: it gives its partitions away, and takes none until that is undone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from snapreplay.counted import counted
from snapreplay.service.clock import wall_time
from snapreplay.service.control.operation_registry import OperationRegistry
from snapreplay.service.control.operations import DrainProcess, NoSuccessor, Operation, OperationState, ProcessCommand
from snapreplay.service.control.protocol import Check, Drain
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer

log = logging.getLogger("snapreplay")


class Group(Protocol):
    """The membership of a process, as a drain needs it."""

    gives_away: bool

    @property
    def share(self) -> Share:
        """The share that the group gave to this process last."""

    def rejoin(self) -> None:
        """Have the partitions assigned again."""


class Draining:
    """Drains one process. For the runners' loop, but for `status` and `checks`. A restart ends the drain."""

    def __init__(self, operations: OperationRegistry, held: Callable[[], Collection[int]]) -> None:
        """Take `held`, which returns the partitions that have a runner in this process. Any thread."""
        self._operations, self._held = operations, held
        self._drain: Drain | None = None
        self._operation_id = ""

    @property
    def status(self) -> Drain | None:
        drain = self._drain
        if drain is None:
            return None
        return msgspec.structs.replace(drain, state="draining" if self._held() else "drained")

    def checks(self) -> Sequence[Check]:
        """Report the drain in the answer of a probe. A drained process is ready: it does all that it should do."""
        drain = self.status
        return [] if drain is None else [Check("drain", ok=True, detail=f"{drain.state}, requested by {drain.by}")]

    def perform(self, asked: ProcessCommand, group: Group | None, peers: Sequence[Peer]) -> Operation:
        """Begin or end the drain. `group` is None while this process is no member, `peers` are the other processes.

        Raises:
            NoSuccessor: no other process would take the partitions.
            Busy: a drain is running already.
        """
        if group is None:
            raise NoSuccessor("this process is not a member of the group yet")
        is_drain = isinstance(asked, DrainProcess)
        # A share without peers comes from a leader that tells nothing about the others.
        if is_drain and self._drain is None and group.share.peers:
            check_successors([each for each in peers if each.process_id not in group.share.absent])
        self.look(peers)
        operation = self._begin(asked) if is_drain else self._end(asked)
        group.gives_away = is_drain
        group.rejoin()
        self.look(peers)
        return self._operations.get(operation.id) or operation

    def stopped(self) -> None:
        """End what is left of the drain: after the end of the process it could not be read."""
        operation = self._operations.get(self._operation_id)
        for part in operation.parts if operation else ():
            said = "the process has stopped"
            self._operations.report(self._operation_id, part.partition, OperationState.FAILED, None, said)

    def _begin(self, asked: ProcessCommand) -> Operation:
        held = sorted(self._held())
        operation = self._operations.create(asked, held)
        self._operation_id = operation.id
        if self._drain is None:
            self._drain = Drain("draining", wall_time(), asked.by, asked.about)
            log.warning("drain requested by %s: handing %s over", asked.by, counted(len(held), "partition"))
        return operation

    def _end(self, asked: ProcessCommand) -> Operation:
        if self._drain is not None:
            log.warning("undrain requested by %s: taking partitions again", asked.by)
        self._drain = None
        operation = self._operations.get(self._operation_id)
        for part in operation.parts if operation else ():
            self._operations.report(self._operation_id, part.partition, OperationState.CANCELLED, None, "undrained")
        return self._operations.create(asked, ())

    def look(self, peers: Sequence[Peer]) -> None:
        """Report the partitions that have left this process, and when it becomes drained, or draining again."""
        drain, operation = self._drain, self._operations.get(self._operation_id)
        if drain is None or operation is None:
            return
        held = self._held()
        for part in operation.parts:
            if part.partition not in held:
                detail = _given_to(part.partition, peers)
                self._operations.report(operation.id, part.partition, OperationState.SUCCEEDED, None, detail)
        now = self.status
        if now is not None and now.state != drain.state:
            if held:
                log.warning("draining again: this process got partitions, because no other process takes them")
            else:
                log.warning("drained: no partition is left")
            self._drain = now


def check_successors(peers: Sequence[Peer]) -> None:
    """Raise NoSuccessor unless one of these processes takes partitions."""
    if not peers:
        raise NoSuccessor("there is no other process")
    if all(each.is_leaving for each in peers):
        leaving = ", ".join(_named(each) for each in peers)
        raise NoSuccessor(f"all other processes are drained or stopping: {leaving}")


def _given_to(partition: int, peers: Sequence[Peer]) -> str:
    owner = next((each for each in peers if partition in each.owned), None)
    return "" if owner is None else f"given to {_named(owner)}"


def _named(peer: Peer) -> str:
    return f"{peer.instance_id} on {peer.host}"
