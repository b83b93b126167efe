"""The operations that were asked for, and their results: the last 1,000. For the runners' loop, but for `all`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence

import msgspec

from snapreplay.service.clock import wall_ms, wall_time
from snapreplay.service.control.operations import (
    BY_KIND,
    Busy,
    Command,
    NotCancellable,
    Operation,
    OperationPart,
    OperationState,
)

OPERATIONS_MAX = 1000
ENDED = (OperationState.SUCCEEDED, OperationState.SKIPPED, OperationState.FAILED, OperationState.CANCELLED)


def operation_id() -> str:
    """Make a UUID whose first 48 bits are the time in milliseconds (RFC 9562, version 7): sorts by creation."""
    value = (wall_ms() << 80) | (uuid.uuid4().int & ((1 << 80) - 1))
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


class OperationRegistry:
    """Source of truth for operations; parts report by (operation id, partition)."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}

    def create(self, asked: Command, partitions: Iterable[int]) -> Operation:
        """Begin an operation, or raise Busy: one of the partitions has an operation of this kind under way."""
        wanted = tuple(partitions)
        self._refuse_busy(asked.kind, wanted)
        operation = Operation(
            id=operation_id(),
            kind=asked.kind,
            state=OperationState.RUNNING,
            reason=asked.about,
            parts=tuple(OperationPart(number, OperationState.PENDING) for number in wanted),
            created_at=wall_time(),
        )
        self._operations[operation.id] = _ended(operation)
        while len(self._operations) > OPERATIONS_MAX:
            del self._operations[next(iter(self._operations))]
        return self._operations[operation.id]

    def report(
        self, operation_id: str, partition: int, state: OperationState, snapshot_id: str | None, detail: str
    ) -> bool:
        """Update one part, and say whether it was cancelled before. Unknown (evicted) operations are ignored."""
        now = OperationPart(partition, state, snapshot_id, detail)
        operation = self._operations.get(operation_id)
        if operation is None:
            return False
        was = {part.partition: part.state for part in operation.parts}
        parts = tuple(
            now if part.partition == partition and part.state not in ENDED else part for part in operation.parts
        )
        self._operations[operation_id] = _ended(msgspec.structs.replace(operation, parts=parts))
        return was.get(partition) is OperationState.CANCELLED

    def cancel(self, operation_id: str, detail: str) -> tuple[Operation, list[int]]:
        """Cancel the parts that can be cancelled; return the operation and the partitions of these parts. An operation
        that is cancelled already stays so.

        Raises:
            NotCancellable: no part can be cancelled.
        """
        operation = self._operations.get(operation_id)
        if operation is None:
            raise NotCancellable(operation_id, "it is not known here")
        if operation.state is OperationState.CANCELLED:
            return operation, []
        if operation.state is not OperationState.RUNNING:
            raise NotCancellable(operation_id, f"it has {operation.state}")
        pending = [part.partition for part in operation.parts if part.state is OperationState.PENDING]
        if not BY_KIND[operation.kind].is_cancellable or not pending:
            raise NotCancellable(operation_id, BY_KIND[operation.kind].too_late)
        parts = tuple(
            OperationPart(part.partition, OperationState.CANCELLED, None, detail) if part.partition in pending else part
            for part in operation.parts
        )
        self._operations[operation_id] = _ended(msgspec.structs.replace(operation, parts=parts))
        return self._operations[operation_id], pending

    def get(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id)

    def all(self) -> Sequence[Operation]:
        """List all operations, newest first. Any thread: nothing comes between the steps of `list`."""
        return list(self._operations.values())[::-1]

    def _refuse_busy(self, kind: str, wanted: tuple[int, ...]) -> None:
        for operation in self._operations.values():
            if operation.kind != kind or operation.state is not OperationState.RUNNING:
                continue
            for part in operation.parts:
                if part.partition in wanted and part.state not in ENDED:
                    raise Busy(part.partition, operation.id, kind)


def _ended(operation: Operation) -> Operation:
    """Set its state and end time, once every part has ended. No parts: nothing to do, succeeded."""
    if any(part.state not in ENDED for part in operation.parts):
        return operation
    state = whole(part.state for part in operation.parts)
    return msgspec.structs.replace(operation, state=state, finished_at=wall_time())


class Part(msgspec.Struct, frozen=True):
    """Reports what becomes of a part of an operation. Those of the same part are equal, so that a cancel finds the
    holder of the first by a second one."""

    operations: OperationRegistry
    wake: Callable[[], None]
    operation_id: str
    partition: int

    def __call__(self, state: OperationState, snapshot_id: str | None, detail: str) -> bool:
        part = self.operation_id, self.partition
        is_cancelled = self.operations.report(*part, state, snapshot_id, detail)
        self.wake()
        return is_cancelled


def whole(parts: Iterable[str]) -> OperationState:
    """Return the state of an operation from the states in which its parts have ended."""
    states = set(parts)
    if OperationState.FAILED in states:
        return OperationState.FAILED
    if OperationState.CANCELLED in states:
        return OperationState.CANCELLED
    return OperationState.SUCCEEDED
