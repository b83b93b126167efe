"""Full snapshots on demand, and the operations that write them."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from snapreplay.api import problems, views
from snapreplay.api.answers import ApiContext, Here
from snapreplay.api.requests import SnapshotRequest
from snapreplay.service.control.document import TriggerSnapshot
from snapreplay.service.control.protocol import Operation
from snapreplay.service.core.phase import Phase

router = APIRouter(tags=["snapshots"], generate_unique_id_function=attrgetter("name"))

_REQUESTS = {
    "all": {"summary": "All live partitions of this process", "value": {}},
    "some": {
        "summary": "Two partitions, with a reason",
        "value": {"partitions": [0, 2], "reason": "before deploy 42"},
    },
}
_TRIGGER: dict[str, Any] = {
    "status_code": 202,
    "responses": views.begun(
        problems.MALFORMED,
        problems.UNKNOWN_PARTITION,
        problems.NOT_OWNED,
        problems.NOTHING_LIVE,
        problems.BUSY,
        problems.TOO_LARGE,
        problems.INVALID,
        problems.NOT_REACHED,
    ),
}


@router.post("/trigger-snapshot", summary="Write full snapshots now", **_TRIGGER)
@router.post(
    "/api/v1/snapshots",
    operation_id="create_snapshots",
    summary="Write full snapshots now (the same as /trigger-snapshot)",
    **_TRIGGER,
)
async def trigger_snapshot(
    here: Here, request: Annotated[SnapshotRequest | None, Body(openapi_examples=_REQUESTS)] = None
) -> Response:
    """Request a full snapshot of each of these partitions, or without a body of all live ones. Processing continues
    meanwhile. If one partition is refused, no snapshot is started."""
    wanted = request or SnapshotRequest()
    partitions = _checked(here, wanted.partitions)
    operation = await here.source.perform(TriggerSnapshot(partitions, wanted.reason))
    return views.accepted(operation)


def _checked(here: ApiContext, partitions: list[int] | None) -> tuple[int, ...] | None:
    if here.status.facts.partition_count is None:
        raise problems.not_reached()
    if partitions is not None:
        return tuple(sorted(set(partitions)))
    if not any(each.phase is Phase.LIVE for each in here.status.partitions):
        raise problems.ProblemError(
            problems.NOTHING_LIVE,
            "no partition of this process is live: there is nothing to write",
            hint="GET /restore-status says what they are doing",
        )
    return None


@router.get("/api/v1/snapshots", responses=views.answered(views.Snapshots))
async def list_snapshots(here: Here) -> Response:
    """List the full snapshots that this process wrote or used, newest first, at most 500."""
    return views.answer(views.Snapshots(here.status.snapshots))


@router.get("/api/v1/operations", responses=views.answered(views.Operations))
async def list_operations(here: Here) -> Response:
    """List the last 1,000 operations at most, newest first."""
    return views.answer(views.Operations(here.status.operations))


@router.get(
    "/api/v1/operations/{operation_id}",
    responses=views.answered(Operation, problems.UNKNOWN_OPERATION, problems.INVALID),
)
async def get_operation(here: Here, operation_id: Annotated[str, Path(max_length=200)]) -> Response:
    """Tell what became of an operation: ask again while `state` is `running`."""
    operation = here.status.operation(operation_id)
    if operation is None:
        raise problems.ProblemError(
            problems.UNKNOWN_OPERATION,
            f"operation {operation_id!r} is not known: this process keeps its last 1,000 operations,"
            " and none from before its start",
            hint="GET /api/v1/operations lists them",
        )
    return views.answer(operation)
