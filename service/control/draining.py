"""The drain of a process before maintenance: it gives its partitions away, and takes none until that is undone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import RetryableError
from snapreplay.service.clock import wall_time
from snapreplay.service.control.operation_registry import OperationRegistry
from snapreplay.service.control.protocol import Check, Drain, Operation, OperationState, SetDrained
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer

log = logging.getLogger("snapreplay")


class NoSuccessor(RetryableError):
    """A refusal of a drain: nobody would have the partitions."""

    def __init__(self, why: str) -> None:
        super().__init__(f"nobody would take the partitions: {why}", hint="start another process of the app first")
        self.why = why


class Group(Protocol):
    """The membership of a process, as a drain needs it."""

    gives_away: bool

    @property
    def share(self) -> Share:
        """The share that the group gave to this process last."""

    def rejoin(self) -> None:
        """Have the partitions assigned anew."""


class Draining:
    """Is asked from any thread, and looks in one. Not kept over a restart."""

    def __init__(self, operations: OperationRegistry, board: StatusBoard) -> None:
        self._operations, self._board = operations, board
        self._lock = threading.RLock()
        self._drain: Drain | None = None
        self._operation_id = ""

    @property
    def status(self) -> Drain | None:
        """The drain; None: none was asked for."""
        drain = self._drain
        return drain and msgspec.structs.replace(drain, state="draining" if self._board.all() else "drained")

    def checks(self) -> Sequence[Check]:
        """Say that it is drained, for the answer of a probe: a drained process is ready, because it does all that it is
        to do."""
        drain = self.status
        return [Check("drain", ok=True, detail=f"{drain.state}, as {drain.by} asked")] if drain is not None else []

    def perform(self, asked: SetDrained, group: Group | None, peers: Sequence[Peer]) -> Operation:
        """Begin or end; `group` is None while this process is no member, `peers` are the others.

        Raises:
            NoSuccessor: nobody takes a partition.
            Busy: partitions are given away already.
        """
        if group is None:
            raise NoSuccessor("this process is not a member of the group yet")
        with self._lock:
            if asked.drained and self._drain is None and group.share.peers:  # else the leader tells nobody of them
                refuse_alone([each for each in peers if each.process_id not in group.share.absent])
            self.look(peers)
            operation = self._begin(asked) if asked.drained else self._end(asked)
            group.gives_away = asked.drained
            group.rejoin()
            self.look(peers)
            return self._operations.get(operation.id) or operation

    def stopped(self) -> None:
        """Let nobody wait any longer: nobody looks after the end of the process."""
        operation = self._operations.get(self._operation_id)
        for part in operation.parts if operation else ():
            said = "the process has stopped"
            self._operations.report(self._operation_id, part.partition, OperationState.FAILED, None, said)

    def _begin(self, asked: SetDrained) -> Operation:
        held = [each.partition for each in self._board.all()]
        operation = self._operations.create("drain", asked.reason, held)
        self._operation_id = operation.id
        if self._drain is None:
            self._drain = Drain("draining", wall_time(), asked.by, asked.reason)
            log.warning("draining: %s are given away, as %s asked", counted(len(held), "partition"), asked.by)
        return operation

    def _end(self, asked: SetDrained) -> Operation:
        if self._drain is not None:
            log.warning("not drained any more, as %s asked", asked.by)
        self._drain = None
        operation = self._operations.get(self._operation_id)
        for part in operation.parts if operation else ():
            self._operations.report(self._operation_id, part.partition, OperationState.CANCELLED, None, "undrained")
        return self._operations.create("undrain", asked.reason, ())

    def look(self, peers: Sequence[Peer]) -> None:
        """Tell of the partitions that are not here any more."""
        with self._lock:
            self._look(peers)

    def _look(self, peers: Sequence[Peer]) -> None:
        drain, operation = self._drain, self._operations.get(self._operation_id)
        if drain is None or operation is None:
            return
        held = {each.partition for each in self._board.all()}
        for part in operation.parts:
            if part.partition not in held:
                takers = (f"{each.instance_id} on {each.host}" for each in peers if part.partition in each.owned)
                said = "".join(f"given to {each}" for each in takers)
                self._operations.report(operation.id, part.partition, OperationState.SUCCEEDED, None, said)
        now = self.status
        if now is not None and now.state != drain.state:
            log.warning("%s", "it has partitions again: nobody else takes them" if held else "drained")
            self._drain = now


def refuse_alone(peers: Sequence[Peer]) -> None:
    """Raise NoSuccessor unless one of these processes takes partitions."""
    if all(each.is_leaving for each in peers):
        leaving = ", ".join(f"{each.instance_id} on {each.host}" for each in peers)
        raise NoSuccessor(f"all others give theirs away, too: {leaving}" if peers else "no other process is there")
