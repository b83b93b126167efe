"""Turns every error of a request into a problem document: errors of the service, and of the framework."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from snapreplay.api import events
from snapreplay.api.problems import (
    ADOPTING,
    BUSY,
    BUSY_LINE,
    DRAINING,
    DRILLING,
    INTERNAL,
    INVALID,
    KEEPING,
    KEY_REUSED,
    LOOP_BLOCKED,
    MALFORMED,
    NO_SUCCESSOR,
    NOT_CANCELLABLE,
    NOT_FAILED,
    NOT_OWNED,
    PAUSING,
    RESUMING,
    RETRYING,
    TOO_LARGE,
    FieldError,
    ProblemError,
    ProblemKind,
    not_reached,
    response,
    unknown_partition,
    wrong_media,
)
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.draining import NoSuccessor
from snapreplay.service.control.operation_registry import NotCancellable
from snapreplay.service.control.protocol import Busy, KeyReused, LoopBlocked, NotFailed, TooManyCommands


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem document, including those of the framework."""
    for error in (
        ProblemError,
        UnknownPartition,
        PartitionNotLive,
        NotFailed,
        Busy,
        KeyReused,
        NoSuccessor,
        NotCancellable,
        LoopBlocked,
        TooManyCommands,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(error, _answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    return response(_as_problem(request, error), request.url.path)


def _as_problem(request: Request, error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case UnknownPartition(partition_count=None):
            return not_reached()
        case UnknownPartition(partition=partition, partition_count=int(count)):
            return unknown_partition(partition, count)
        case PartitionNotLive():
            return ProblemError(
                NOT_OWNED,
                f"partition {error.partition}: {error.detail}",
                partition=error.partition,
                hint="GET /restore-status shows which process has it, and its phase",
            )
        case NoSuccessor():
            return ProblemError(NO_SUCCESSOR, error.message, hint=error.hint)
        case NotCancellable():
            hint = "GET /api/v1/operations shows it"
            return ProblemError(NOT_CANCELLABLE, error.message, operation_id=error.operation_id, hint=hint)
        case NotFailed() | Busy() | KeyReused() | LoopBlocked() | TooManyCommands():
            return _not_now(error)
        case RequestValidationError():
            return _invalid(request, error)
        case HTTPException():
            return _framework(request, error)
        case _:
            return ProblemError(INTERNAL, "the request failed; the log of the service has the reason")


def _not_now(error: NotFailed | Busy | KeyReused | LoopBlocked | TooManyCommands) -> ProblemError:
    match error:
        case NotFailed():
            hint = "GET /restore-status shows its phase"
            return ProblemError(NOT_FAILED, error.message, partition=error.partition, hint=hint)
        case Busy():
            return _busy(error)
        case KeyReused():
            return ProblemError(KEY_REUSED, error.message, hint="a new request needs a new key, such as a random UUID")
        case LoopBlocked():
            return ProblemError(LOOP_BLOCKED, error.message, headers={"Retry-After": "5"}, hint=error.hint)
        case TooManyCommands():
            return ProblemError(BUSY_LINE, error.message, headers={"Retry-After": "1"})


def _busy(error: Busy) -> ProblemError:
    operation = error.operation_id
    return ProblemError(
        _BUSY_WITH[error.kind],
        error.message,
        partition=error.partition,
        operation_id=operation,
        hint=f"GET /api/v1/operations/{operation} shows it" if operation else "try again when it has ended",
    )


_BUSY_WITH = {
    "snapshot": BUSY,
    "adopt": ADOPTING,
    "retry": RETRYING,
    "pause": PAUSING,
    "resume": RESUMING,
    "drill": DRILLING,
    "drain": DRAINING,
    "savepoint": KEEPING,
    "savepoint-drop": KEEPING,
}


def _framework(request: Request, error: HTTPException) -> ProblemError:
    """Translate what routing and parsing refuse: unknown path, method not allowed, undecodable or endless body."""
    if error.status_code == MALFORMED.status:
        return ProblemError(MALFORMED, "the body cannot be decoded as JSON in UTF-8")
    if error.status_code == TOO_LARGE.status:
        return ProblemError(TOO_LARGE, str(error.detail))
    kind = ProblemKind("", error.status_code, HTTPStatus(error.status_code).phrase)
    hint = "GET /openapi.json lists the paths and methods"
    headers = {"Allow": _methods(request)} if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else error.headers
    return ProblemError(kind, str(error.detail), headers=headers, hint=hint)


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
            return ProblemError(MALFORMED, f"the body is not JSON at character {at}: {reason}")
    media = request.headers.get("content-type", "")
    if found[0]["loc"] == ("body",) and "json" not in media:
        return wrong_media(media)
    # The value is not echoed: it may be huge, or a secret sent by mistake.
    errors = tuple(
        FieldError(where=".".join(str(part) for part in each["loc"]), message=each["msg"].removeprefix("Value error, "))
        for each in found[:20]
    )
    where, message = errors[0].where, errors[0].message
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ProblemError(INVALID, f"{where}: {message[:1].lower()}{message[1:]}{more}", errors=errors)
