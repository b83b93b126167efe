"""Puts together what all processes of an app say of operations. Pure.

An operation on partitions of several processes has an id that joins those that it has in each of them. So any process
can tell what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from snapreplay.api.fleet_views import Age, Host, Process, ProcessId, Says
from snapreplay.service.control.operation_registry import ENDED, whole
from snapreplay.service.control.operations import Operation, OperationPart, OperationState
from snapreplay.service.control.vocabulary import said
from snapreplay.service.core.liveness import PeerState

JOIN = "+"
_LEFT_UNDONE = (PeerState.DEAD, PeerState.ENDED)


class AppOperationPart(OperationPart, frozen=True, kw_only=True):
    """One partition's share of an operation."""

    process_id: Annotated[str, said("Of the process that carries it out.")]
    host: Annotated[str, said("Of that process.")]


class AppOperation(Operation, frozen=True, kw_only=True):
    """An asynchronous request and its result."""

    parts: tuple[AppOperationPart, ...]
    process_id: Annotated[ProcessId, said("Of the process that carries it out; null: several do, each a part.")]
    host: Host
    age_seconds: Age


LISTED_MAX = 50
"""As many as somebody reads. A process keeps more, because a command for many partitions waits for each by its id."""


class Operations(msgspec.Struct, frozen=True):
    """The last 50 operations, newest first. Older ones are found by their ids."""

    items: tuple[AppOperation, ...]


def operations(says: Sequence[Says]) -> Operations:
    """List the newest operations of these processes, newest first."""
    found = [(who, each) for who, told in says if told for each in told.operations]
    if len(says) > 1:
        found.sort(key=lambda each: each[1].id, reverse=True)
    return Operations(tuple(joined([each]) for each in found[:LISTED_MAX]))


def find(operation_id: str, says: Sequence[Says], begun: Mapping[str, tuple[str, Operation]]) -> AppOperation | None:
    """Find an operation of one or several processes."""
    found = located(operation_id, says, begun)
    return joined(found) if found else None


def located(
    operation_id: str, says: Sequence[Says], begun: Mapping[str, tuple[str, Operation]]
) -> list[tuple[Process, Operation]]:
    """Find what each process has of an operation; empty: it is not known. `begun` are those that were begun so lately
    that their processes may not have told them yet: by whom, and how they began."""
    told = {each.id: (who, each) for who, document in says if document for each in document.operations}
    processes = {who.process_id: who for who, _ in says}
    found: list[tuple[Process, Operation]] = []
    for each in operation_id.split(JOIN):
        by, began = begun.get(each, ("", None))
        if each in told:
            found.append(told[each])
        elif began is not None and by in processes:
            found.append((processes[by], began))
        else:
            return []
    return found


def joined(found: Sequence[tuple[Process, Operation]]) -> AppOperation:
    """Return the operations of several processes as one. What a process left undone when it died has failed."""
    one = found[0][0] if len(found) == 1 else None
    first = found[0][1]
    parts = sorted((_part(part, by) for by, each in found for part in each.parts), key=lambda part: part.partition)
    ends = [each.finished_at for _, each in found if each.finished_at is not None]
    ages = [by.age_seconds for by, _ in found if by.age_seconds is not None]
    return AppOperation(
        JOIN.join(each.id for _, each in found),
        first.kind,
        _state(part.state for part in parts),
        first.reason,
        created_at=min(each.created_at for _, each in found),
        finished_at=max(ends) if len(ends) == len(found) else None,
        parts=tuple(parts),
        process_id=one.process_id if one else None,
        host=one.host if one else None,
        age_seconds=max(ages, default=None),
    )


def _part(part: OperationPart, by: Process) -> AppOperationPart:
    state, detail = part.state, part.detail
    if by.state in _LEFT_UNDONE and state not in ENDED:
        state, detail = OperationState.FAILED, f"process {by.process_id} on {by.host} is {by.state}: {by.last_error}"
    return AppOperationPart(part.partition, state, part.snapshot_id, detail, process_id=by.process_id, host=by.host)


def _state(parts: Iterable[str]) -> OperationState:
    states = set(parts)
    return whole(states) if states <= set(ENDED) else OperationState.RUNNING
