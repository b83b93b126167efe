"""The paths of a process with several apps that are not below one of them: probes and metrics of all, and the list of
the apps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from snapreplay.api import page, probing, problem_answers, problems, views
from snapreplay.api.credentials import HttpTokens
from snapreplay.api.guard import Guard, Hosts
from snapreplay.api.probing import Probing
from snapreplay.api.routes import exposed
from snapreplay.api.server import APPS
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.metrics import ProcessCollector
from snapreplay.service.control.protocol import Check, StatusDocument

LIST = APPS.rstrip("/")


class AppPlace(msgspec.Struct, frozen=True):
    """An app of the process; its API and its page are below `path`."""

    app_id: str
    path: str


class AppPlaces(msgspec.Struct, frozen=True):
    """The apps of a process, in their order on the command line."""

    items: tuple[AppPlace, ...]


def create_front(statuses: Callable[[], Sequence[StatusDocument]], hosts: Hosts, tokens: HttpTokens) -> Starlette:
    """Make the ASGI application."""

    def app_ids() -> list[str]:
        return [each.facts.app_id for each in statuses()]

    async def first_page(_: Request) -> Response:
        # Relative, so a proxy may serve it below a path.
        return RedirectResponse(f"{APPS[1:]}{app_ids()[0]}/", headers=page.HEADERS)

    async def list_apps(_: Request) -> Response:
        return views.answer(AppPlaces(tuple(AppPlace(each, f"{APPS}{each}/") for each in app_ids())))

    async def app_page(request: Request) -> Response:
        app_id = request.path_params["app_id"]
        if app_id not in app_ids():
            raise problems.unknown_app(request.url.path, app_ids())
        return RedirectResponse(f"{app_id}/", headers=page.HEADERS)

    async def metrics(request: Request) -> Response:
        return exposed(ProcessCollector(statuses(), EVENTS), request)

    async def elsewhere(request: Request, _: Exception) -> Response:
        return problems.response(problems.unknown_app(request.url.path, app_ids()), request.url.path)

    def probe(probing: Probing, *checks: Check) -> Route:
        async def answer(_: Request) -> Response:
            said = probing.answer(statuses(), *checks)
            return views.answer(said, said.code)

        return Route(probing.path, answer)

    routes = [
        probe(probing.LIVE),
        probe(probing.READY),
        probe(probing.STARTED, Check("http", ok=True)),
        Route("/metrics", metrics),
        Route("/", first_page),
        Route(LIST, list_apps),
        Route(f"{APPS}{{app_id}}", app_page),
    ]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    app.state.path = ""
    problem_answers.install(app, f"GET {LIST} lists the apps")
    app.add_exception_handler(404, elsewhere)
    app.add_middleware(Guard, hosts=hosts, tokens=tokens)
    return app
