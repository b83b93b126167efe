"""The routes of operations: what was asked for, what became of it, and how it is cancelled."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Path, Response

from snapreplay.api import problems, views
from snapreplay.api.action_routes import begun_here
from snapreplay.api.answers import ApiContext, Here, Keyed
from snapreplay.api.fleet_routes import Covers
from snapreplay.api.fleet_views import Covered, Process
from snapreplay.api.forwarding import Begun
from snapreplay.api.operation_views import Operation, Operations, find, joined, located, operations
from snapreplay.service.control import protocol
from snapreplay.service.control.operation_registry import NotCancellable
from snapreplay.service.control.protocol import Cancel

ROUTER = APIRouter(tags=["snapshots"], generate_unique_id_function=attrgetter("name"))

OPERATION_ID_MAX = 37 * 128
"""Of one that joins those of as many processes as are followed."""
OperationId = Annotated[str, Path(max_length=OPERATION_ID_MAX)]


@ROUTER.get("/api/v1/operations", responses=views.answered(Operations, problems.INVALID))
async def list_operations(covered: Covers) -> Response:
    """List the last 50 operations, newest first."""
    return views.answer(operations(covered.says))


@ROUTER.get(
    "/api/v1/operations/{operation_id}",
    responses=views.answered(Operation, problems.UNKNOWN_OPERATION, problems.INVALID),
)
async def get_operation(here: Here, covered: Covers, operation_id: OperationId) -> Response:
    """Tell what became of an operation: ask again while `state` is `running`. Any process may be asked."""
    found = find(operation_id, covered.says, here.forwarder.begun)
    if found is not None:
        return views.answer(found)
    raise problems.unknown_operation(operation_id)


@ROUTER.delete(
    "/api/v1/operations/{operation_id}",
    status_code=202,
    dependencies=[Keyed],
    responses=views.begun(problems.UNKNOWN_OPERATION, problems.NOT_CANCELLABLE, problems.INVALID, problems.OWNER_AWAY),
)
async def cancel_operation(here: Here, covered: Covers, operation_id: OperationId) -> Response:
    """Cancel what has not begun of an operation: a waiting snapshot or retry, a drill, a drain, a savepoint.
    What has begun to change something goes on. Any process may be asked."""
    parts = located(operation_id, covered.says, here.forwarder.begun)
    if not parts:
        raise problems.unknown_operation(operation_id)
    refused: list[Exception] = []
    for place, (who, each) in enumerate(parts):
        try:
            parts[place] = await _cancelled(here, covered, who, each)
        except (problems.ProblemError, NotCancellable) as error:
            refused.append(error)
    if len(refused) == len(parts):
        raise refused[0]
    return views.accepted(joined(parts))


async def _cancelled(here: ApiContext, covered: Covered, who: Process, operation: protocol.Operation) -> Begun:
    if who == covered.says[0].process:
        return await begun_here(here, covered, Cancel(operation.id, here.asker))
    path = f"/api/v1/operations/{operation.id}"
    return await here.forwarder.ask(who, path, passed_on=here.passed_on, method="DELETE")
