"""The routes of savepoints: what is kept of the app, and keeping and dropping it. The process that is asked does it,
whoever owns the partitions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Body, Path, Request, Response
from pydantic import Field

from snapreplay.api import problems, state_problems, views
from snapreplay.api.action_routes import Pause, begun_here, check_reached
from snapreplay.api.answers import ApiContext, Here, Keyed
from snapreplay.api.fleet_routes import covered_by
from snapreplay.api.fleet_views import Scope
from snapreplay.api.operation_views import joined
from snapreplay.errors import RetryableError
from snapreplay.service.control.protocol import OperationState
from snapreplay.service.control.savepoint_list import DropSavepoint, KeepSavepoint, SavepointList, SavepointShown

ROUTER = APIRouter(tags=["savepoints"], generate_unique_id_function=attrgetter("name"))

LOOK_SECONDS = 2.0
"""At most, for a look whether a savepoint is there; after that it may be. A look is short if there is none."""
_NAME = {"pattern": r"^[A-Za-z0-9._-]+$", "max_length": 200, "description": "Of the savepoint."}
Name = Annotated[str, Path(**_NAME)]
_UNREAD = (problems.INVALID, problems.SAVEPOINTS_UNREAD, problems.BUSY_LINE, state_problems.LATE)
_CHANGES = (problems.KEEPING, problems.INVALID, problems.NOT_REACHED)
_WANTED = {"one": {"summary": "Before a deployment", "value": {"name": "before-42", "reason": "deploy 42"}}}


class Wanted(Pause):
    """A savepoint to keep."""

    name: Annotated[str, Field(**_NAME)]


@ROUTER.get("/api/v1/savepoints", responses=views.answered(SavepointList, *_UNREAD))
async def list_savepoints(request: Request) -> Response:
    """Read from Kafka which savepoints the app has, also those that cannot be used, and why."""
    return views.answer(await _read(request, ""))


@ROUTER.get("/api/v1/savepoints/{name}", responses=views.answered(SavepointShown, problems.UNKNOWN_SAVEPOINT, *_UNREAD))
async def get_savepoint(request: Request, name: Name) -> Response:
    """Read one from Kafka: its increments and manifests. `snapreplay savepoint show` proves every entry, too."""
    found = (await _read(request, name)).items
    if not found:
        raise problems.unknown_savepoint(name)
    return views.answer(found[0])


async def _read(request: Request, name: str) -> SavepointList:
    try:
        found: SavepointList = await request.app.state.states.savepoints(name)
    except RetryableError as error:
        raise state_problems.of(error) from error
    return found


async def _is_unknown(request: Request, here: ApiContext, name: str) -> bool:
    """Say whether the app surely has none of this name. One that cannot be read, or is being kept, may be dropped."""
    if any(
        each.kind == KeepSavepoint.operation and each.state == OperationState.RUNNING for each in here.status.operations
    ):
        return False
    with suppress(TimeoutError, RetryableError):
        async with asyncio.timeout(LOOK_SECONDS):
            return not (await request.app.state.states.savepoints(name)).items
    return False


@ROUTER.post(
    "/api/v1/savepoints",
    status_code=202,
    summary="Keep the state of all partitions under a name",
    dependencies=[Keyed],
    responses=views.begun(problems.MALFORMED, problems.TOO_LARGE, *_CHANGES),
)
async def create_savepoint(here: Here, wanted: Annotated[Wanted, Body(openapi_examples=_WANTED)]) -> Response:
    """Keep the state of every partition after its last committed batch. Processing goes on meanwhile. The operation
    succeeds when the savepoint is read back and proven; it fails with the reason if the name is taken, or if a state
    cannot be restored. An interrupted one is completed."""
    check_reached(here)
    asked = KeepSavepoint(wanted.name, here.asker, wanted.reason)
    return views.accepted(joined([await begun_here(here, covered_by(here, Scope.LOCAL), asked)]))


@ROUTER.delete(
    "/api/v1/savepoints/{name}",
    status_code=202,
    summary="Delete a savepoint for good",
    dependencies=[Keyed],
    responses=views.begun(problems.UNKNOWN_SAVEPOINT, *_CHANGES),
)
async def drop_savepoint(request: Request, here: Here, name: Name) -> Response:
    """Delete the topics of a savepoint, complete or not. Apps that have begun with it keep their state. With an
    Idempotency-Key, which an earlier drop of this name may have had, or while a savepoint is being kept, an unknown
    name is no refusal: the operation comes next, and fails if there is none then."""
    check_reached(here)
    if not here.key and await _is_unknown(request, here, name):
        raise problems.unknown_savepoint(name)
    return views.accepted(joined([await begun_here(here, covered_by(here, Scope.LOCAL), DropSavepoint(name))]))
