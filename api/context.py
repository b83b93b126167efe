"""What a route knows of a request: the service, who asks, and the processes that the answer covers. And the check of
its query and body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Scope as AsgiScope

from snapreplay.api import problems
from snapreplay.api.asking import Asking
from snapreplay.api.events import StatusEvents
from snapreplay.api.fleet_views import Covered, Says, Scope, fleet
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.guard import ASKER, ASKER_HEADER, AT_PROBES_PORT
from snapreplay.api.last_hour import LastHourRecorder
from snapreplay.api.peers import Peers
from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.protocol import StatusDocument

STATUS = "snapreplay.status"
"""The key of a request's scope for the status document that the answer is made of."""


class ApiContext(NamedTuple):
    """The service that a request is about, and who asks."""

    source: Asking
    status: StatusDocument
    events: StatusEvents
    peers: Peers
    hour: LastHourRecorder
    forwarder: Forwarder
    now: Callable[[], datetime]
    asker: str = ""
    """The name of the client."""
    path: str = ""
    """The prefix of all its paths; empty if the process has one app."""

    @property
    def passed_on(self) -> Mapping[str, str]:
        return {ASKER_HEADER: self.asker} if self.asker else {}

    @property
    def fleet(self) -> list[Says]:
        """All processes of the app; this one comes first."""
        return fleet(self.status, self.peers.known(self.status), boot_seconds())


async def context_of(request: Request) -> ApiContext:
    source, *others = request.app.state.context
    # `KeptAnswers` has looked already, to know whether it must ask a handler at all.
    status = request.scope.get(STATUS) or await source.look()
    return ApiContext(source, status, *others)._replace(asker=request.scope.get(ASKER, ""), path=request.app.state.path)


Here = Annotated[ApiContext, Depends(context_of)]


async def _covered(
    here: Here,
    scope: Annotated[
        Scope | None,
        Query(description="`app`: all processes; `local`: this one alone. Default: app, if it knows of other ones."),
    ] = None,
) -> Covered:
    return covered_by(here, scope)


def covered_by(here: ApiContext, scope: Scope | None) -> Covered:
    says = here.fleet
    found = scope or (Scope.APP if len(says) > 1 else Scope.LOCAL)
    return Covered(says if found is Scope.APP else says[:1], found)


Covers = Annotated[Covered, Depends(_covered)]

NAME_LENGTH_MAX = 100


async def _checked(request: Request) -> None:
    """Refuse what the route does not take: it would be left out silently, and the request would do or tell something
    else. A route takes the names that it declares, each once, and a body if it declares one. Probes and scrapers may
    add what they like."""
    if request.url.path in AT_PROBES_PORT:
        return
    route: APIRoute = request.scope["route"]
    if route.body_field is None and has_body(request.scope) and not await _is_empty(request):
        raise problems.wrong("body", "this path takes none")
    if not request.scope["query_string"]:
        return
    known = sorted(_names(route.dependant))
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        where = f"query.{name[:NAME_LENGTH_MAX]}"
        if name not in known:
            takes = f"only {', '.join(known)}" if known else "none"
            raise problems.wrong(where, f"this path has no such parameter: it takes {takes}")
        if count > 1:
            raise problems.wrong(where, "it is there more than once")


def has_body(scope: AsgiScope) -> bool:
    """Say whether a body is announced; nothing of it is read."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in scope["headers"]
    )


async def _is_empty(request: Request) -> bool:
    """Say whether nothing is asked by its body: some clients send an empty document with every request."""
    try:
        body = await request.body()
    except ClientDisconnect:  # the answer has no reader
        return False
    return b"".join(body.split()) in (b"", b"{}", b"null")


def _names(dependant: Dependant) -> set[str]:
    found = {each.alias for each in dependant.query_params}
    return found.union(*map(_names, dependant.dependencies))


CHECKED = Depends(_checked)
"""For each route of the API."""
