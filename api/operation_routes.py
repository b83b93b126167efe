"""The routes of operations: one for each command of `service/control/operations.py`, made from its class; and what
became of operations.

Any process may be asked. It carries out what concerns itself, and passes the rest on to the processes that own the
partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import Parameter, Signature, getdoc
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from snapreplay.api import problems, views
from snapreplay.api.context import ApiContext, Covers, Here
from snapreplay.api.fleet_views import Covered
from snapreplay.api.forwarding import Begun, shares
from snapreplay.api.views import AppOperation, Operations, joined, located, operations
from snapreplay.service.control.operations import (
    COMMANDS,
    CancelOperation,
    Command,
    NotCancellable,
    PartitionsCommand,
    ProcessCommand,
    RedriveDeadLetters,
    SavepointCommand,
    TriggerSnapshot,
)

ROUTER = APIRouter(tags=["operations"], generate_unique_id_function=attrgetter("name"))


@ROUTER.get("/api/v1/operations", responses=views.answered(Operations, problems.INVALID))
async def list_operations(covered: Covers) -> Response:
    """List the last 50 operations, newest first."""
    return views.answer(operations(covered.says))


@ROUTER.get(
    "/api/v1/operations/{operation_id}",
    responses=views.answered(AppOperation, problems.UNKNOWN_OPERATION, problems.INVALID),
)
async def get_operation(
    here: Here, covered: Covers, operation_id: Annotated[str, Path(max_length=37 * 128)]
) -> Response:
    """Tell what became of an operation: ask again while `state` is `running`. Any process may be asked."""
    found = located(operation_id, covered.says, here.forwarder.begun)
    if not found:
        raise problems.unknown_operation(operation_id)
    return views.answer(joined(found))


# ---- who carries a command out


async def _begun(here: ApiContext, covered: Covered, command: Command) -> Sequence[Begun]:
    match command:
        case CancelOperation():
            return await _cancelled(here, covered, command)
        case ProcessCommand():
            return [await _by_process(here, covered, command)]
        case PartitionsCommand():
            return await _by_owners(here, covered, command)
        case _:
            return [await _here(here, covered, command)]


async def _here(here: ApiContext, covered: Covered, command: Command) -> Begun:
    """Let this process begin, and tell the others at once: they may be asked what became of it."""
    operation = await here.source.perform(command)
    here.events.tell(at_once=True)
    return covered.says[0].process, operation


async def _by_owners(here: ApiContext, covered: Covered, command: PartitionsCommand) -> list[Begun]:
    own, others = shares(covered, command.numbers)
    begun = [await _here(here, covered, command.only(own))] if own is None or own else []
    parts = [(who, command.only(numbers)) for who, numbers in others]
    more, refused = await here.forwarder.ask_all(parts, here.passed_on)
    begun += more
    if refused and begun:
        raise problems.partly(joined(begun).id, refused)
    if refused:  # `loop-blocked` says that nothing was begun: not where another owner may have begun it
        raise next((each for each in refused if each.kind is problems.OWNER_AWAY), refused[0])
    return begun


async def _by_process(here: ApiContext, covered: Covered, command: ProcessCommand) -> Begun:
    who = next((each.process for each in covered.says if each.process.process_id == command.process_id), None)
    if who is None:
        raise problems.ProblemError(problems.UNKNOWN_PROCESS, f"process {command.process_id!r} is not known here")
    if who == covered.says[0].process:
        return await _here(here, covered, command)
    return await here.forwarder.ask(who, command, here.passed_on)


async def _cancelled(here: ApiContext, covered: Covered, command: CancelOperation) -> list[Begun]:
    parts = located(command.operation_id, covered.says, here.forwarder.begun)
    if not parts:
        raise problems.unknown_operation(command.operation_id)
    refused: list[Exception] = []
    for place, (who, each) in enumerate(parts):
        own = msgspec.structs.replace(command, operation_id=each.id)
        try:
            if who == covered.says[0].process:
                parts[place] = await _here(here, covered, own)
            else:
                parts[place] = await here.forwarder.ask(who, own, here.passed_on)
        except (problems.ProblemError, NotCancellable) as error:
            refused.append(error)
    if len(refused) == len(parts):
        raise refused[0]
    return parts


# ---- the routes

_ALSO_REFUSED: dict[type[Command], tuple[problems.ProblemKind, ...]] = {
    PartitionsCommand: (problems.NOT_REACHED, problems.OWNER_AWAY),
    TriggerSnapshot: (problems.NOTHING_LIVE, problems.PARTLY),
    ProcessCommand: (problems.UNKNOWN_PROCESS, problems.OWNER_AWAY),
    SavepointCommand: (problems.NOT_REACHED,),
    RedriveDeadLetters: (problems.NOT_REACHED,),
    CancelOperation: (problems.UNKNOWN_OPERATION, problems.OWNER_AWAY),
}
"""The problems of a command that HTTP itself has with it."""


class Body(BaseModel):
    """The body of a request. No coercion and no unknown fields: `false` is not a partition, and a misspelt field is an
    error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        return {name: _whole(value) for name, value in given.items()} if isinstance(given, dict) else given


def _whole(value: Any) -> Any:
    # JSON has one kind of number: 2.0 is an integer there, and some clients send it.
    if isinstance(value, list):
        return [_whole(each) if isinstance(each, float) else each for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def canonical(value: object) -> object:
    # int() also takes "+1", "1_0", " 1" and "1.0": one partition has one URL.
    if isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value):
        raise ValueError("a partition is a number, such as 0")
    return value


def as_pydantic(kind: Any) -> Any:
    """Return a type with msgspec's limits and texts as pydantic has them."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, *about = args
        return Annotated[as_pydantic(base), *(Field(**_given(each)) for each in about)]
    if origin in (Union, UnionType):
        return Union[tuple(map(as_pydantic, args))]  # noqa: UP007 - of a tuple
    return list[as_pydantic(args[0])] if origin is Sequence else kind  # type: ignore[misc]  # made while running


def _given(meta: msgspec.Meta) -> dict[str, Any]:
    names = ("ge", "le", "min_length", "max_length", "pattern", "description", "examples")
    return {name: value for name in names if (value := getattr(meta, name)) is not None}


def _in_path(kind: Any) -> Any:
    base, meta = get_args(kind)
    of_int = [BeforeValidator(canonical)] if base is int else []
    return Annotated[base, Field(**_given(meta)), *of_int, Path(description=meta.description)]


def _add(kind: type[Command]) -> None:
    summary, _, text = (getdoc(kind) or "").partition("\n\n")
    types: dict[str, Any] = {"here": Here, "covered": Covers}
    types |= {
        each.name: _in_path(each.type) for each in msgspec.structs.fields(kind) if f"{{{each.name}}}" in kind.path
    }
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=each) for name, each in types.items()]
    if wanted := kind.parameters():
        members = {each.name: (as_pydantic(each.type), ... if each.required else each.default) for each in wanted}
        model: Any = create_model(f"{kind.__name__}Body", __base__=Body, __doc__=summary, **cast("Any", members))
        is_needed = any(each.required for each in wanted)
        body = {"annotation": model} if is_needed else {"annotation": model | None, "default": None}
        parameters.append(Parameter("body", Parameter.KEYWORD_ONLY, **body))

    async def begin(*, here: ApiContext, covered: Covered, body: Body | None = None, **in_path: Any) -> Response:
        command = kind(**in_path, **dict(body or ()), by=here.asker)
        return views.accepted(joined(await _begun(here, covered, command)), here.path)

    begin.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # the web framework reads it
    also = [each for of, found in _ALSO_REFUSED.items() if issubclass(kind, of) for each in found]
    of_body = [problems.MALFORMED, problems.TOO_LARGE] if wanted else []
    refused = [*(problems.KIND_OF[each] for each in kind.refusals), *also, *of_body, problems.INVALID]
    ROUTER.add_api_route(
        kind.path,
        begin,
        methods=[kind.method],
        name=re.sub(r"\B(?=[A-Z])", "_", kind.__name__).lower(),
        status_code=202,
        summary=summary.removesuffix("."),
        description=text,
        responses=views.begun(*refused),
    )


for _kind in COMMANDS:
    _add(_kind)
