"""The HTTP application over a running service's `Control`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from snapreplay import __version__
from snapreplay.api import examples, problems
from snapreplay.api.bodies import BodyLimit
from snapreplay.api.context import ApiContext
from snapreplay.api.routes import operations, partitions, probes
from snapreplay.service.clock import wall_seconds
from snapreplay.service.control.protocol import Control

_DESCRIPTION = """\
What a running snapreplay process is doing, and full snapshots on demand. It covers only the
partitions that *this* process owns. Errors are RFC 9457 problem documents; `type` is stable.
"""
_TAGS = [
    {"name": "partitions", "description": "Recovery, position and state of each partition."},
    {"name": "snapshots", "description": "Full snapshots and the operations that write them."},
    {"name": "process", "description": "Probes, metrics, facts."},
]


def create_app(control: Control, *, now: Callable[[], float] = wall_seconds) -> FastAPI:
    """An ASGI application; it keeps no state of its own, so one `control` may serve several.

    `now` gives Unix seconds.
    """
    app = _Api(
        title="snapreplay",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        # These pages fetch their scripts from elsewhere: they may stay blank, and nobody checks the scripts.
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = ApiContext(control, now)
    problems.install(app)
    app.add_middleware(BodyLimit)
    for group in (partitions, operations, probes):
        app.include_router(group.router)
    return app


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """With examples and problems. Made at the first request, so that the start need not wait."""
        if self.openapi_schema is None:
            self.openapi_schema = _document(self)
        return self.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        tags=_TAGS,
        routes=app.routes,
    )
    for operation in _operations(document):
        for status, response in operation["responses"].items():
            _add_example(status, response.get("content", {}).get("application/json", {}))
    problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    nested = problem.pop("$defs", {})
    document["components"]["schemas"].update(nested | {"Problem": problem})
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def _add_example(status: str, content: dict[str, Any]) -> None:
    # Here and not at the routes: FastAPI drops every null of an example given there.
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    if name:
        content["example"] = (
            examples.PROBES[status] if name == "Probe" else examples.BY_SCHEMA[name]
        )
