"""The routes of the app as a whole: which processes there are, and what each tells the others while it goes on."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from snapreplay.api import event_stream, events, fleet_views, problems, views
from snapreplay.api.answers import ApiContext, Here
from snapreplay.api.fleet_views import Covered, Says, Scope
from snapreplay.api.guard import IS_STILL_KNOWN
from snapreplay.api.limits import connections_max
from snapreplay.service.clock import boot_seconds

ASK_SECONDS = 1.0
"""Between two looks at the login of a stream."""
ROUTER = APIRouter(tags=["fleet"], generate_unique_id_function=attrgetter("name"))


async def _covered(
    here: Here,
    scope: Annotated[
        Scope | None,
        Query(description="`app`: all processes; `local`: this one alone. Default: app, if it knows of other ones."),
    ] = None,
) -> Covered:
    return covered_by(here, scope)


def covered_by(here: ApiContext, scope: Scope | None) -> Covered:
    """Return what a request covers that asks for this scope."""
    says = _fleet(here)
    found = scope or (Scope.APP if len(says) > 1 else Scope.LOCAL)
    return Covered(says if found is Scope.APP else says[:1], found)


Covers = Annotated[Covered, Depends(_covered)]


def _fleet(here: ApiContext) -> list[Says]:
    return fleet_views.fleet(here.status, here.peers.known(here.status), boot_seconds())


@ROUTER.get("/api/v1/processes", responses=views.answered(views.Processes, problems.INVALID))
async def list_processes(here: Here) -> Response:
    """List the processes of the app: this one, the others of its group as of the last assignment, then those that
    died within the last quarter of an hour."""
    return views.answer(views.Processes(tuple(each.process for each in _fleet(here))))


@ROUTER.get("/api/v1/group-changes", responses=views.answered(views.GroupChanges, problems.INVALID))
async def list_group_changes(covered: Covers) -> Response:
    """List the last 50 generations of the group that each process has seen: who joined, left, or was expelled."""
    return views.answer(views.group_changes(covered))


@ROUTER.get(
    events.PATH,
    response_class=StreamingResponse,
    responses={
        200: {"description": "Events, until the service ends.", "content": {event_stream.MEDIA_TYPE: {}}},
        **problems.documented(problems.TOO_MANY_STREAMS, problems.INVALID),
    },
)
async def follow_events(
    request: Request,
    here: Here,
    follower: Annotated[
        str, Query(max_length=200, description="The process id of a peer that follows; others leave it out.")
    ] = "",
    last_event_id: Annotated[
        str, Header(max_length=100, description="The id of the last event on an earlier stream: only news comes.")
    ] = "",
) -> Response:
    """Tell what this process does while it goes on, as server-sent events. `status`: a status document as JSON; the
    first one has all members, each further one those that changed, at most once a second. Twice a second a comment says
    for how long the service has been silent, and how old the status is. `bye`: the service ends in good order. A stream
    ends when its token is revoked or expires, or gets another role."""
    document = here.status
    is_peer = any(each.process_id == follower for each in document.peers)
    places = connections_max()
    if here.events.readers >= (places if is_peer else places - places // 2):
        raise problems.too_many_streams(here.events.readers)
    return StreamingResponse(
        _while_known(here.events.stream(document, last_event_id), request.scope[IS_STILL_KNOWN]),
        media_type=event_stream.MEDIA_TYPE,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _while_known(pieces: AsyncGenerator[bytes], is_still_known: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the pieces as long as the login of the request is good. Something is sent twice a second, always."""
    asked_at = time.monotonic()
    async with aclosing(pieces):
        async for piece in pieces:
            if time.monotonic() - asked_at >= ASK_SECONDS:
                asked_at = time.monotonic()
                if not is_still_known():
                    return
            yield piece
