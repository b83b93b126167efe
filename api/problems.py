"""Errors over HTTP: RFC 9457 problem documents, one kind per thing that can go wrong, and the problem that answers each
error of the service and of the web framework.

`type` is stable, so programs may compare it; `detail` names the thing and the value; `hint` says what
to do. The text of an unexpected exception never leaves the process, but it is logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Match

from snapreplay.api import events
from snapreplay.api.fleet_views import Process
from snapreplay.api.json_values import encoded
from snapreplay.api.server import APPS
from snapreplay.counted import counted, some
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.kafka_reads import SavepointsUnread
from snapreplay.service.control.operations import Busy, NoSuccessor, NotCancellable, NotFailed
from snapreplay.service.control.protocol import LoopBlocked, TooManyCommands
from snapreplay.service.control.state_reads import NotRead, NotReadable, ReadLate, UnknownMap, WrongRead

MEDIA_TYPE = "application/problem+json"
URN = "urn:snapreplay:problem:"


class ProblemKind(NamedTuple):
    """A kind of problem. `name` is the last part of its `type`. `hint` is used where a problem has none of its own.
    `retry_seconds` > 0 is sent as `Retry-After`."""

    name: str
    status: int
    title: str
    hint: str | None = None
    retry_seconds: int = 0


class ProblemError(Exception):
    """A problem that a route raises; answered as a problem document.

    Safe: What was refused was not begun, and the service continues. If the answer says that a part was begun, or that
    this is not known, GET /api/v1/operations shows what was begun.
    """

    def __init__(
        self, kind: ProblemKind, detail: str, *, headers: Mapping[str, str] | None = None, **members: object
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        if kind.retry_seconds:
            self.headers["Retry-After"] = str(kind.retry_seconds)
        self.members = members | {"hint": members.get("hint") or kind.hint}


UNKNOWN_PARTITION = ProblemKind("unknown-partition", 404, "No such partition")
NOT_HERE = ProblemKind("partition-not-here", 404, "Partition not here")
UNKNOWN_OPERATION = ProblemKind("unknown-operation", 404, "No such operation", "GET /api/v1/operations lists them")
NOT_OWNED = ProblemKind(
    "partition-not-live", 409, "Partition not owned or not live", "GET /restore-status shows which process has it"
)
NOTHING_LIVE = ProblemKind(
    "nothing-live", 409, "No live partition", "GET /restore-status says what each partition is doing"
)
BUSY = ProblemKind(
    "operation-running", 409, "An operation of this kind is already running", "try again when it has ended"
)
NOT_FAILED = ProblemKind("partition-not-failed", 409, "Partition not failed", "GET /restore-status shows its phase")
NO_SUCCESSOR = ProblemKind("no-successor", 409, "No process would take the partitions")
NOT_CANCELLABLE = ProblemKind(
    "operation-not-cancellable", 409, "The operation cannot be cancelled", "GET /api/v1/operations shows it"
)
SAVEPOINTS_UNREAD = ProblemKind("savepoints-not-readable", 503, "The savepoints cannot be read now", retry_seconds=1)
UNKNOWN_APP = ProblemKind("unknown-app", 404, "No such app")
UNKNOWN_PROCESS = ProblemKind("unknown-process", 404, "No such process", "GET /api/v1/processes lists them")
MALFORMED = ProblemKind("malformed-body", 400, "The body is not JSON")
TOO_LARGE = ProblemKind("body-too-large", 413, "The body is too large")
MEDIA = ProblemKind(
    "media-type", 415, "The body is not declared as JSON", "send the header `Content-Type: application/json`"
)
INVALID = ProblemKind("invalid-request", 422, "The request is not valid")
TWO_LENGTHS = ProblemKind("two-lengths", 400, "Two lengths")
MALFORMED_HEADER = ProblemKind("malformed-header", 400, "A header cannot be read")
NO_TOKEN = ProblemKind(
    "no-token", 401, "A token is needed", "send `Authorization: Bearer TOKEN`, a line of the service's http.token_file"
)
NO_CERTIFICATE = ProblemKind(
    "no-certificate",
    403,
    "A certificate is needed",
    "show one that is signed by an authority in the file http.client_ca_file of the service: "
    "`curl --cert FILE --key FILE ...`",
)
ROLE = ProblemKind("role-too-low", 403, "The role does not allow it")
OTHER_PORT = ProblemKind(
    "not-at-this-port", 404, "Not at this port", "ask at http.port, with a login if it demands one"
)
FOREIGN_HOST = ProblemKind("foreign-host", 403, "Foreign host")
FOREIGN_ORIGIN = ProblemKind(
    "foreign-origin", 403, "Foreign origin", "ask with curl or with `snapreplay`, which send no Origin"
)
LOOP_BLOCKED = ProblemKind("loop-blocked", 503, "The partitions' event loop is blocked", retry_seconds=5)
BUSY_LINE = ProblemKind("too-many-requests", 503, "Too many requests wait", retry_seconds=1)
TOO_MANY_STREAMS = ProblemKind(
    "too-many-streams", 503, "Too many streams of events", "GET /restore-status needs no stream", retry_seconds=10
)
NOT_REACHED = ProblemKind(
    "cluster-not-reached",
    503,
    "The Kafka cluster has not been reached yet",
    "wait, because the service keeps trying; GET /readyz and the log say why it has not succeeded",
    retry_seconds=5,
)
OWNER_AWAY = ProblemKind(
    "owner-unreachable",
    503,
    "The owner of the partition cannot be asked",
    "GET /api/v1/processes says which processes can be asked",
    retry_seconds=5,
)
PARTLY = ProblemKind("partly-begun", 409, "Not begun for all partitions")
INTERNAL = ProblemKind("internal", 500, "Internal error")
UNKNOWN_STORE = ProblemKind("unknown-store", 404, "No such store")
NO_KEY = ProblemKind("key-not-found", 404, "No such key")
NOT_READABLE = ProblemKind(
    "partition-not-readable",
    503,
    "The partition cannot be read now",
    "GET /restore-status says what each partition is doing, and which process owns it",
    retry_seconds=1,
)
LATE = ProblemKind(
    "read-late",
    503,
    "The state was not read in time",
    "a handler blocks the event loop, or the process is suspended; GET /healthz says which",
    retry_seconds=1,
)


OF_A_POST = (ROLE, TWO_LENGTHS, MALFORMED_HEADER, FOREIGN_HOST, FOREIGN_ORIGIN, MEDIA, BUSY_LINE, LOOP_BLOCKED)
"""What every request that is to do something may be answered with."""


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request; `where` is a path such as `body.partitions.0`."""

    where: str
    message: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An RFC 9457 problem document. Members after `instance` are ours, absent when empty."""

    type: Annotated[str, Meta(examples=[URN + UNKNOWN_PARTITION.name])]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    instance: Annotated[str, Meta(description="Path of the request.")]
    hint: str | None = None
    partition: int | None = None
    partition_count: int | None = None
    operation_id: str | None = None
    phase: str | None = None
    partitions: tuple[int, ...] | None = None
    errors: tuple[FieldError, ...] | None = None


OURS = Problem.__struct_fields__[5:]


def documented(*kinds: ProblemKind) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route: its kinds, named by status."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in (*kinds, NO_TOKEN, NO_CERTIFICATE, INTERNAL):
        schema = {"$ref": "#/components/schemas/Problem"}
        known = {"description": HTTPStatus(kind.status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        found = responses.setdefault(kind.status, known)
        found["description"] += f"{', ' if ':' in found['description'] else ': '}{kind.name}"
        if kind.retry_seconds:
            found["headers"] = RETRY_AFTER
    return responses


RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}


def not_reached() -> ProblemError:
    """Make the error for a cluster that was not reached yet: nothing is known about partitions before."""
    return ProblemError(NOT_REACHED, "no broker of kafka.bootstrap.servers has answered since this process started")


def owner_away(process: Process, why: str) -> ProblemError:
    who = f"process {process.process_id} on {process.host} ({process.state})"
    return ProblemError(OWNER_AWAY, f"{who} would have to do it: {why}")


def of_peer(process: Process, status: int, document: bytes) -> ProblemError:
    """Make the error for a refusal by another process. What that one holds against this process, such as its token,
    does not concern the caller."""
    refusal = None
    with suppress(msgspec.MsgspecError):
        refusal = msgspec.json.decode(document, type=Problem)
    if refusal is None or status not in _PASSED_ON or not refusal.type.startswith(URN):
        unknown = status == HTTPStatus.NOT_FOUND
        return owner_away(process, "it is of a version without this request" if unknown else f"it answers {status}")
    retry_seconds = int(status == BUSY_LINE.status)
    kind = ProblemKind(refusal.type.removeprefix(URN), status, refusal.title, retry_seconds=retry_seconds)
    if kind.name == NOT_HERE.name:  # it has just moved
        kind = NOT_READABLE
    members = {name: getattr(refusal, name) for name in OURS}
    return ProblemError(kind, f"process {process.process_id} on {process.host}: {refusal.detail}", **members)


_PASSED_ON = (404, 409, 422, 503)


def partly(operation_id: str, refused: Sequence[ProblemError]) -> ProblemError:
    """Make the error for a request that some processes have begun and others have refused."""
    return ProblemError(
        PARTLY,
        f"begun as operation {operation_id}, but not everywhere: {'; '.join(each.detail for each in refused)}",
        operation_id=operation_id,
        hint=f"GET /api/v1/operations/{operation_id} shows what has begun",
    )


def unknown_operation(operation_id: str) -> ProblemError:
    return ProblemError(
        UNKNOWN_OPERATION,
        f"operation {operation_id!r} is not known: a process keeps its last 1,000 operations,"
        " and none from before its start",
    )


def unknown_app(path: str, app_ids: Sequence[str]) -> ProblemError:
    """Make the error for a path of a process with several apps that names none of them."""
    found = [f"{APPS}{each}" for each in app_ids]
    return ProblemError(
        UNKNOWN_APP,
        f"this process runs {counted(len(found), 'app')}, and {path[:200]!r} names none of them",
        hint=f"use a path below {some(found)}; on the command line, add it to --url",
    )


def unknown_partition(partition: int, partition_count: int) -> ProblemError:
    """Make the error for a partition that does not exist; `partition_count` >= 1."""
    return ProblemError(
        UNKNOWN_PARTITION,
        f"partition {partition} does not exist: there are {partition_count} (0 to {partition_count - 1})",
        partition=partition,
        partition_count=partition_count,
    )


def no_token(authorization: str) -> ProblemError:
    """Make the error for a request without a token, or with another one. What it has is not told."""
    is_wrong = authorization.partition(" ")[0].lower() == "bearer"
    return ProblemError(
        NO_TOKEN,
        "the token is not one of this service" if is_wrong else "this service asks for a token",
        headers={"WWW-Authenticate": 'Bearer realm="snapreplay"' + (', error="invalid_token"' if is_wrong else "")},
    )


def role_too_low(role: str, needed: str) -> ProblemError:
    return ProblemError(
        ROLE,
        f"the token is of the role {role}; this needs {needed}",
        hint=f"send a token whose line in http.token_file begins with `{needed}:`",
    )


def wrong_media(media: str) -> ProblemError:
    """Make the error for a body that is not declared as JSON, which a page of any site could send."""
    return ProblemError(MEDIA, f"Content-Type is {media[:200]!r}, not 'application/json'")


def response(problem: ProblemError, path: str) -> Response:
    kind, members = problem.kind, cast("Any", problem.members)
    type_ = URN + kind.name if kind.name else "about:blank"
    document = Problem(type_, kind.title, kind.status, problem.detail, path, **members)
    return Response(encoded(document), kind.status, headers=problem.headers, media_type=MEDIA_TYPE)


def wrong(where: str, why: str) -> ProblemError:
    """Make the error for a part of a request. The value itself is not repeated: it may be a secret."""
    return ProblemError(INVALID, f"{where}: {why}", errors=(FieldError(where, why),))


def missing(partition: int, partition_count: int | None) -> ProblemError:
    if partition_count is None:
        return not_reached()
    if partition >= partition_count:
        return unknown_partition(partition, partition_count)
    return ProblemError(
        NOT_HERE,
        f"partition {partition} exists (there are {partition_count}), but this process does not own it",
        partition=partition,
        partition_count=partition_count,
    )


def key_not_found(read: Sequence[int], not_read: Sequence[NotRead]) -> ProblemError:
    """Make the error for a key that was not found: it is not there, or that is not known."""
    if not not_read:
        asked = f"{counted(len(read), 'partition')} {'was' if len(read) == 1 else 'were'} read"
        return ProblemError(NO_KEY, f"the key is not in the store: {asked}", partitions=tuple(read))
    missing = "; ".join(f"partition {each.partition}: {each.reason}" for each in not_read[:5])
    missing += f"; and {len(not_read) - 5} more" if len(not_read) > 5 else ""
    return ProblemError(
        NOT_READABLE,
        f"the key was not found, but {counted(len(not_read), 'partition')} could not be read: {missing}",
        partitions=tuple(read),
    )


# ---- the problem that answers an error

KIND_OF: dict[type[Exception], ProblemKind] = {
    UnknownPartition: UNKNOWN_PARTITION,
    PartitionNotLive: NOT_OWNED,
    NotFailed: NOT_FAILED,
    Busy: BUSY,
    NoSuccessor: NO_SUCCESSOR,
    NotCancellable: NOT_CANCELLABLE,
    LoopBlocked: LOOP_BLOCKED,
    TooManyCommands: BUSY_LINE,
    UnknownMap: UNKNOWN_STORE,
    WrongRead: INVALID,
    NotReadable: NOT_READABLE,
    ReadLate: LATE,
    SavepointsUnread: SAVEPOINTS_UNREAD,
}
"""Error of the service → kind of the problem that answers it."""


def install(app: Starlette, overview: str = "GET /openapi.json lists the paths and methods") -> None:
    """Make every error of `app` a problem document, including those of the framework. `overview`: hint for a request
    that no route takes."""
    app.state.overview = overview
    for error in (*KIND_OF, ProblemError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    return response(_as_problem(request, error), request.app.state.path + request.url.path)


def _as_problem(request: Request, error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _invalid(request, error)
        case HTTPException():
            return _framework(request, error)
        case UnknownPartition():
            count = error.partition_count
            return not_reached() if count is None else unknown_partition(error.partition, count)
        case WrongRead():
            return wrong(error.where, error.why)
        case NotReadable(phase=None):
            hint = "GET /restore-status?scope=app names the process that owns it, if one is known"
            return ProblemError(NOT_HERE, error.message, partition=error.partition, hint=hint)
        case NotReadable():
            hint = f"GET /restore-status says how far it is; it is {error.phase}"
            return ProblemError(NOT_READABLE, error.message, partition=error.partition, phase=error.phase, hint=hint)
        case _:
            return _of_kind(error)


def _of_kind(error: Exception) -> ProblemError:
    kind = next((found for each, found in KIND_OF.items() if isinstance(error, each)), None)
    if kind is None:
        return ProblemError(INTERNAL, "the request failed; the log of the service has the reason")
    members = {
        name: getattr(error, name) for name in ("partition", "operation_id") if getattr(error, name, None) is not None
    }
    # The kind's own hint comes first: the error's is for a program or the command line.
    hint = kind.hint or getattr(error, "hint", "") or None
    if isinstance(error, Busy) and error.operation_id:
        hint = f"GET /api/v1/operations/{error.operation_id} shows it"
    detail = str(getattr(error, "message", error))
    if isinstance(error, PartitionNotLive):
        detail = f"partition {error.partition}: {error.detail}"
    return ProblemError(kind, detail, hint=hint, **members)


def _framework(request: Request, error: HTTPException) -> ProblemError:
    """Translate what routing and parsing refuse: unknown path, method not allowed, undecodable or endless body."""
    if error.status_code == MALFORMED.status:
        return ProblemError(MALFORMED, "the body cannot be decoded as JSON in UTF-8")
    if error.status_code == TOO_LARGE.status:
        return ProblemError(TOO_LARGE, str(error.detail))
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
            return ProblemError(MALFORMED, f"the body is not JSON at character {at}: {reason}")
    media = request.headers.get("content-type", "")
    if found[0]["loc"] == ("body",) and "json" not in media:
        return wrong_media(media)
    # The value is not echoed: it may be huge, or a secret sent by mistake.
    errors = tuple(
        FieldError(".".join(str(part) for part in each["loc"]), each["msg"].removeprefix("Value error, "))
        for each in found[:20]
    )
    where, message = errors[0].where, errors[0].message
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ProblemError(INVALID, f"{where}: {message[:1].lower()}{message[1:]}{more}", errors=errors)
