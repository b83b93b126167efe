"""The names in the query of a request: a route takes those that it declares, each once. A misspelt one would be left
out silently, and the request would do or tell something else.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from snapreplay.api import state_problems
from snapreplay.api.guard import AT_PROBES_PORT

NAME_LENGTH_MAX = 100


async def _checked(request: Request) -> None:
    """Refuse what the route does not take. Probes and scrapers may add what they like."""
    if not request.scope["query_string"] or request.url.path in AT_PROBES_PORT:
        return
    route: APIRoute = request.scope["route"]
    known = sorted(_names(route.dependant))
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        where = f"query.{name[:NAME_LENGTH_MAX]}"
        if name not in known:
            takes = f"only {', '.join(known)}" if known else "none"
            raise state_problems.wrong(where, f"this path has no such parameter: it takes {takes}")
        if count > 1:
            raise state_problems.wrong(where, "it is there more than once")


def _names(dependant: Dependant) -> set[str]:
    found = {each.alias for each in dependant.query_params}
    return found.union(*map(_names, dependant.dependencies))


CHECKED = Depends(_checked)
"""Said of each route of the API."""
