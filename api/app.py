"""The HTTP application: its routes, its description, and what stands before them: a guard, a bound for bodies, and the
answers that are kept. In a process with several apps, also the paths that are not below one of them: probes and metrics
of all, and the list of the apps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapreplay import __version__
from snapreplay.api import events, operation_routes, page, probing, problems, state_routes, views
from snapreplay.api.asking import Asking
from snapreplay.api.context import CHECKED, STATUS, has_body
from snapreplay.api.credentials import NO_TOKENS, HttpTokens
from snapreplay.api.events import StatusEvents
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.guard import Guard, Hosts
from snapreplay.api.last_hour import LastHourRecorder
from snapreplay.api.peers import Peers
from snapreplay.api.probing import Probing
from snapreplay.api.routes import ROUTERS, exposed
from snapreplay.api.server import APPS, MAKING
from snapreplay.service.clock import wall_time
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.metrics import ProcessCollector
from snapreplay.service.control.protocol import Check, StatusDocument

_DESCRIPTION = """\
What an app is doing, and full snapshots on demand. Any process answers for all processes of the app that it can
reach. Errors are RFC 9457 problem documents; `type` is stable.
"""
_TAGS = [
    {"name": "partitions", "description": "Recovery, position and state of each partition."},
    {"name": "state", "description": "Entries of the state, by key and in ranges."},
    {"name": "snapshots", "description": "Full snapshots of each partition."},
    {"name": "dead letters", "description": "Records that a handler could not process."},
    {"name": "savepoints", "description": "States of all partitions that are kept under a name."},
    {"name": "operations", "description": "What an app can be asked to do, and what became of it."},
    {"name": "fleet", "description": "All processes of the app, and what each tells the others."},
    {"name": "process", "description": "Probes, metrics, facts."},
]

_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `http.token_file`. The header `Snapreplay-Role` of each answer tells its role.",
}
_PROBES = ("liveness", "readiness", "startup")


def create_app(
    source: Asking,
    hosts: Hosts | None = None,
    *,
    tokens: HttpTokens = NO_TOKENS,
    events: StatusEvents | None = None,
    peers: Peers | None = None,
    hour: LastHourRecorder | None = None,
    path: str = "",
    now: Callable[[], datetime] = wall_time,
) -> FastAPI:
    """Make an ASGI application; it keeps no state of its own, so one `source` may serve several. `events` and `peers`
    that do not run know nothing but the source. `path`: prefix of all its paths; empty if the process has one app."""
    app = _Api(
        title="snapreplay",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        # These pages fetch their scripts from elsewhere: they may stay blank, with unchecked scripts. `page` has
        # one of its own.
        docs_url=None,
        redoc_url=None,
        # A path has one spelling. A redirect would lead to any address in `Host`, and is kept for others, too.
        redirect_slashes=False,
    )
    peers = peers or Peers()
    others = (events or StatusEvents(), peers, hour or LastHourRecorder())
    app.state.context = (source, *others, Forwarder(peers.caller), now)
    app.state.needs_token = tokens.are_needed
    app.state.path = path
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(KeptAnswers, source=source)
    app.add_middleware(Guard, hosts=hosts or Hosts(), tokens=tokens, path=path)
    for router in (*ROUTERS, state_routes.ROUTER, operation_routes.ROUTER):
        app.include_router(router, dependencies=[CHECKED])
    page.install(app)
    return app


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Describe the API with all problems. Made at the first request, so that the start need not wait."""
        with MAKING:
            if self.openapi_schema is None:
                self.openapi_schema = _document(self)
        return self.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, tags=_TAGS, routes=app.routes
    )
    operations = (operation for methods in document["paths"].values() for operation in methods.values())
    for operation in operations:
        if operation["operationId"] in _PROBES:
            operation["security"] = []
            del operation["responses"][str(problems.NO_TOKEN.status)]
            del operation["responses"][str(problems.NO_CERTIFICATE.status)]
    token: dict[str, list[str]] = {"token": []}
    if app.state.path:
        document["servers"] = [{"url": app.state.path}]
    document["security"] = [token] if app.state.needs_token else [{}, token]
    document["components"]["securitySchemes"] = {"token": _TOKEN}
    document["components"]["schemas"].update(views.schemas())
    return document


BODY_BYTES_MAX = 256 * 1024
"""Twice what the largest valid request needs: 10,000 partitions and a reason. 300 MB of JSON stopped the heartbeats for
30 s and took 1.2 GB (measured), and the process lost its partitions."""


class BodyLimit:
    """ASGI middleware: a body beyond `BODY_BYTES_MAX` is not read to its end, but answered with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received_bytes = 0

        async def limited() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > BODY_BYTES_MAX:
                # FastAPI would report any other class as a body that cannot be parsed.
                raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
            return message

        await self._app(scope, limited, send)


KEPT_MAX = 64
_CONSTANT = "/openapi.json"
_NEGOTIATED = b"accept"


class _Answer(NamedTuple):
    start: Message
    body: bytes


class KeptAnswers:
    """An ASGI middleware that keeps answers. A GET is answered once per status document, however many
    clients ask: a handler costs up to 4 ms, an answer that is kept 0.1 (measured). A HEAD is answered as a GET without
    its body."""

    def __init__(self, app: ASGIApp, source: Asking) -> None:
        self._app = app
        self._source = source
        self._document: StatusDocument | None = None
        self._kept: dict[tuple[object, ...], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_kept = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not is_kept or page.owns(scope["path"]) or scope["path"] == events.PATH:
            await self._app(scope, receive, send)
            return
        is_alone = has_body(scope) or scope["path"].startswith((state_routes.PATH, state_routes.HISTORY_PATH))
        answer = await (self._made if is_alone else self._answer)(scope, receive)
        await send(answer.start)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> _Answer:
        accept = tuple(value for name, value in scope["headers"] if name == _NEGOTIATED)
        if scope["path"] == _CONSTANT:
            key: tuple[object, ...] = (_CONSTANT,)
            return await self._kept_or_made(key, scope, receive)
        document = await self._source.look()
        if document is not self._document:
            constant = [each for each in self._kept.items() if each[0][0] == _CONSTANT]
            self._document, self._kept = document, dict(constant)
        key = (scope["path"], scope["query_string"], accept)
        return await self._kept_or_made(key, {**scope, STATUS: document}, receive)

    async def _kept_or_made(self, key: tuple[object, ...], scope: Scope, receive: Receive) -> _Answer:
        kept = self._kept  # while the answer is made, a newer document may come
        answer = kept.get(key) or await self._made(scope, receive)
        if len(kept) < KEPT_MAX:
            kept[key] = answer
        return answer

    async def _made(self, scope: Scope, receive: Receive) -> _Answer:
        start: Message = {}
        parts: list[bytes] = []

        async def kept(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            else:
                parts.append(message.get("body", b""))

        await self._app({**scope, "method": "GET"}, receive, kept)
        return _Answer(start, b"".join(parts))


LIST = APPS.rstrip("/")


class AppPlace(msgspec.Struct, frozen=True):
    """An app of the process; its API and its page are below `path`."""

    app_id: str
    path: str


class AppPlaces(msgspec.Struct, frozen=True):
    """The apps of a process, in their order on the command line."""

    items: tuple[AppPlace, ...]


def create_front(statuses: Callable[[], Sequence[StatusDocument]], hosts: Hosts, tokens: HttpTokens) -> Starlette:
    """Make the ASGI application for the paths that are not below one of several apps."""

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
    problems.install(app, f"GET {LIST} lists the apps")
    app.add_exception_handler(404, elsewhere)
    app.add_middleware(Guard, hosts=hosts, tokens=tokens)
    return app
