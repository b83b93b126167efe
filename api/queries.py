"""The names in the query of a request, and its body: a route takes the names that it declares, each once, and a body if
it declares one. What it does not take would be left out silently, and the request would do or tell something else.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from snapreplay.api import state_problems
from snapreplay.api.answers import has_body
from snapreplay.api.guard import AT_PROBES_PORT

NAME_LENGTH_MAX = 100


async def _checked(request: Request) -> None:
    """Refuse what the route does not take. Probes and scrapers may add what they like."""
    if request.url.path in AT_PROBES_PORT:
        return
    route: APIRoute = request.scope["route"]
    if route.body_field is None and has_body(request.scope) and not await _is_empty(request):
        raise state_problems.wrong("body", "this path takes none")
    if not request.scope["query_string"]:
        return
    known = sorted(_names(route.dependant))
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        where = f"query.{name[:NAME_LENGTH_MAX]}"
        if name not in known:
            takes = f"only {', '.join(known)}" if known else "none"
            raise state_problems.wrong(where, f"this path has no such parameter: it takes {takes}")
        if count > 1:
            raise state_problems.wrong(where, "it is there more than once")


async def _is_empty(request: Request) -> bool:
    """Say whether nothing is asked by its body: some clients send an empty document with every request."""
    try:
        body = await request.body()
    except ClientDisconnect:  # nobody hears the answer
        return False
    return b"".join(body.split()) in (b"", b"{}", b"null")


def _names(dependant: Dependant) -> set[str]:
    found = {each.alias for each in dependant.query_params}
    return found.union(*map(_names, dependant.dependencies))


CHECKED = Depends(_checked)
"""Said of each route of the API."""
