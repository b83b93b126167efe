"""Turns every error of a request into a problem document: errors of the service, and of the framework."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Match

from snapreplay.api import events, problems
from snapreplay.api.problems import FieldError, ProblemError, ProblemKind
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.lists import SavepointsUnread
from snapreplay.service.control.operations import Busy, NoSuccessor, NotCancellable, NotFailed
from snapreplay.service.control.protocol import LoopBlocked, TooManyCommands
from snapreplay.service.control.state_reads import NotReadable, ReadLate, UnknownMap, WrongRead

KIND_OF: dict[type[Exception], ProblemKind] = {
    UnknownPartition: problems.UNKNOWN_PARTITION,
    PartitionNotLive: problems.NOT_OWNED,
    NotFailed: problems.NOT_FAILED,
    Busy: problems.BUSY,
    NoSuccessor: problems.NO_SUCCESSOR,
    NotCancellable: problems.NOT_CANCELLABLE,
    LoopBlocked: problems.LOOP_BLOCKED,
    TooManyCommands: problems.BUSY_LINE,
    UnknownMap: problems.UNKNOWN_STORE,
    WrongRead: problems.INVALID,
    NotReadable: problems.NOT_READABLE,
    ReadLate: problems.LATE,
    SavepointsUnread: problems.SAVEPOINTS_UNREAD,
}
"""Error of the service → kind of the problem that answers it."""


def install(app: Starlette, overview: str = "GET /openapi.json lists the paths and methods") -> None:
    """Make every error of `app` a problem document, including those of the framework. `overview`: hint for a request
    that no route takes."""
    app.state.overview = overview
    for error in (*KIND_OF, ProblemError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, _answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    return problems.response(_as_problem(request, error), request.app.state.path + request.url.path)


def _as_problem(request: Request, error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _invalid(request, error)
        case HTTPException():
            return _framework(request, error)
        case _:
            return of_service(error)


def of_service(error: Exception) -> ProblemError:
    if isinstance(error, UnknownPartition):
        count = error.partition_count
        return problems.not_reached() if count is None else problems.unknown_partition(error.partition, count)
    if isinstance(error, WrongRead):
        return problems.wrong(error.where, error.why)
    if isinstance(error, NotReadable):
        return _not_readable(error)
    kind = next((found for each, found in KIND_OF.items() if isinstance(error, each)), None)
    if kind is None:
        return ProblemError(problems.INTERNAL, "the request failed; the log of the service has the reason")
    members = {
        name: getattr(error, name) for name in ("partition", "operation_id") if getattr(error, name, None) is not None
    }
    # The kind's own hint comes first: the error's is for a program or the command line.
    hint = kind.hint or getattr(error, "hint", "") or None
    if isinstance(error, Busy) and error.operation_id:
        hint = f"GET /api/v1/operations/{error.operation_id} shows it"
    if isinstance(error, PartitionNotLive):
        return ProblemError(kind, f"partition {error.partition}: {error.detail}", hint=hint, **members)
    return ProblemError(kind, str(getattr(error, "message", error)), hint=hint, **members)


def _not_readable(error: NotReadable) -> ProblemError:
    if error.phase is None:
        hint = "GET /restore-status?scope=app names the process that owns it, if one is known"
        return ProblemError(problems.NOT_HERE, error.message, partition=error.partition, hint=hint)
    hint = f"GET /restore-status says how far it is; it is {error.phase}"
    return ProblemError(problems.NOT_READABLE, error.message, partition=error.partition, phase=error.phase, hint=hint)


def _framework(request: Request, error: HTTPException) -> ProblemError:
    """Translate what routing and parsing refuse: unknown path, method not allowed, undecodable or endless body."""
    if error.status_code == problems.MALFORMED.status:
        return ProblemError(problems.MALFORMED, "the body cannot be decoded as JSON in UTF-8")
    if error.status_code == problems.TOO_LARGE.status:
        return ProblemError(problems.TOO_LARGE, str(error.detail))
    kind = ProblemKind("", error.status_code, HTTPStatus(error.status_code).phrase)
    headers = {"Allow": _methods(request)} if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else error.headers
    return ProblemError(kind, str(error.detail), headers=headers, hint=request.app.state.overview)


def _methods(request: Request) -> str:
    """List the methods of a path: the framework names those of its first route alone."""
    scope, routes = request.scope, request.app.routes
    found = [
        method
        for method in ("GET", "POST", "DELETE")
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    has_head = "GET" in found and scope["path"] != events.PATH
    return ", ".join([*found, *(["HEAD"] if has_head else [])])


def _invalid(request: Request, error: RequestValidationError) -> ProblemError:
    found = error.errors()
    for each in found:
        if each["type"] == "json_invalid":
            at, reason = each["loc"][-1], each.get("ctx", {}).get("error", "")
            return ProblemError(problems.MALFORMED, f"the body is not JSON at character {at}: {reason}")
    media = request.headers.get("content-type", "")
    if found[0]["loc"] == ("body",) and "json" not in media:
        return problems.wrong_media(media)
    # The value is not echoed: it may be huge, or a secret sent by mistake.
    errors = tuple(
        FieldError(where=".".join(str(part) for part in each["loc"]), message=each["msg"].removeprefix("Value error, "))
        for each in found[:20]
    )
    where, message = errors[0].where, errors[0].message
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ProblemError(problems.INVALID, f"{where}: {message[:1].lower()}{message[1:]}{more}", errors=errors)
