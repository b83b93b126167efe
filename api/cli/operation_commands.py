"""The verbs that let a running service do something: one for each class of `service/control/operations.py`.

A verb begins operations and prints them; with --wait it prints what became of them. Partitions are chosen here: for
a command without --partition, those on which it makes sense.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import Parameter, Signature, getdoc
from typing import TYPE_CHECKING, Annotated, Any, get_args

from msgspec import Meta
from msgspec.structs import FieldInfo

from snapreplay.api.cli import options
from snapreplay.api.cli.options import Option
from snapreplay.api.cli.output import ExitCode, Format, OperationRefused, note, print_json
from snapreplay.errors import SnapreplayError, UsageError
from snapreplay.service.control.operations import (
    COMMANDS,
    AdoptSnapshot,
    CancelOperation,
    Command,
    DrillPartition,
    PartitionCommand,
    ProcessCommand,
    RedriveDeadLetters,
    ResumePartition,
    RetryPartition,
    SavepointCommand,
    TriggerSnapshot,
)

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

POLL_S = 0.2
OUTCOME = "Exit code: 0: begun, with --wait succeeded; 1: refused, or with --wait failed or cancelled."
_OUTCOME_OF_CANCEL = "Exit code: 0: cancelled; 1: refused."


_CHOSEN: dict[type[Command], str] = {
    RetryPartition: "failed",
    ResumePartition: "paused",
    DrillPartition: "live",
    TriggerSnapshot: "live",
}
"""Command → the partitions that it takes when none is named. Other commands need --partition."""


def _chosen(client: Client, what: str) -> list[int]:
    partitions = client.restore_status()["partitions"]
    is_paused = what == "paused"
    found = [each["partition"] for each in partitions if (each["paused_since"] if is_paused else each["phase"] == what)]
    if not found:
        raise OperationRefused(
            f"no partition is {what if is_paused else what.upper()}, according to the process at {client.url}",
            hint="`snapreplay restore-status` shows their phases",
            code=ExitCode.FINDINGS,
        )
    return found


def _partitions(default: str) -> Any:
    text = f"State partition; repeatable. Default: all {default}."
    return Annotated[list[int] | None, Option("--partition -p", text, least=0)]


def _verb(command: type[Command]) -> Callable[..., ExitCode]:
    """Make the function of a verb: its options are the parameters of the command."""

    def verb(client: Client, output: Format, *, wait: bool = False, **given: Any) -> ExitCode:
        with client:
            return _carried_out(client, command, _requests(command, client, given), wait, output)

    verb.__name__ = command.verb
    verb.__doc__ = f"{getdoc(command)}\n\n{_OUTCOME_OF_CANCEL if command is CancelOperation else OUTCOME}"
    verb.__signature__ = Signature(_options(command))  # type: ignore[attr-defined]  # read by `options_of`
    return verb


def _options(command: type[Command]) -> list[Parameter]:
    fields = [each for each in command.parameters() if each.name != "partitions"]
    found = {each.name: (_option(each), each.default if not each.required else Parameter.empty) for each in fields}
    if command in _CHOSEN:
        found = {"partition": (_partitions(_CHOSEN[command]), None)} | found
    elif issubclass(command, PartitionCommand):
        found = {"partition": (options.SomePartitions, Parameter.empty)} | found
    elif issubclass(command, ProcessCommand):
        found = {"host": (options.OnHost, "")} | found
    elif command is CancelOperation:
        found = {"operation_id": (options.OperationId, Parameter.empty)}
    if command is not CancelOperation:
        found["wait"] = (options.Wait, False)
    found |= {"client": (options.Running, Parameter.empty), "output": (options.Output, Format.TABLE)}
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in found.items()
    ]


def _option(parameter: FieldInfo) -> Any:
    """Make the option of a parameter, from its type and its text."""
    kind, meta = get_args(parameter.type) if hasattr(parameter.type, "__metadata__") else (parameter.type, Meta())
    name = f"--{parameter.name.replace('_', '-')}"
    return Annotated[kind, Option(name, meta.description or "", least=meta.ge, most=meta.le)]


def _requests(command: type[Command], client: Client, given: dict[str, Any]) -> Sequence[Command]:
    """Return what is asked for: an operation for each partition, or for each process."""
    if issubclass(command, PartitionCommand):
        numbers = given.pop("partition") or _chosen(client, _CHOSEN[command])
        if command is AdoptSnapshot and len(set(numbers)) > 1:
            raise UsageError(
                "a manifest is of one partition, and several are named", hint="run `snapreplay adopt` for each of them"
            )
        return [command(partition=number, **given) for number in sorted(set(numbers))]
    if issubclass(command, ProcessCommand):
        return [command(process_id=each, **given) for each in _processes(client, given.pop("host"))]
    if command is TriggerSnapshot:
        return [TriggerSnapshot(partitions=given.pop("partition") or None, **given)]
    if command is CancelOperation:
        from snapreplay.api.cli.client import name_segment

        name_segment(given["operation_id"], "id of an operation")
    return [command(**given)]


def _processes(client: Client, host: str) -> list[str]:
    processes = client.processes()
    found = [each["process_id"] for each in processes if (each["host"] == host if host else each["state"] == "self")]
    if not found:
        known = ", ".join(sorted({each["host"] for each in processes}))
        raise OperationRefused(
            f"no process of the app is on host {host}", hint=f"hosts with processes: {known}", code=ExitCode.REFUSED
        )
    return sorted(found)


def _carried_out(
    client: Client, command: type[Command], requests: Sequence[Command], wait: bool, output: Format
) -> ExitCode:
    """Begin the operations and print them, at their end if that is to be awaited."""
    operations, refused = _begun(client, requests)
    for request, operation in zip(requests, operations, strict=False):
        if isinstance(request, TriggerSnapshot) and request.partitions is None:
            _note_left_out(client, operation)
    if wait:
        operations = _ended(client, operations)
    if output is Format.JSON:
        print_json({"items": operations})
    else:
        _print_operations(operations)
    for error in refused:
        note(str(error))
    # A part that has failed before does not make a failure of a cancel.
    bad = () if command is CancelOperation else ("failed", "cancelled") if wait else ("failed",)
    is_failed = refused or any(operation["state"] in bad for operation in operations)
    return ExitCode.FINDINGS if is_failed else ExitCode.OK


def _begun(client: Client, requests: Sequence[Command]) -> tuple[list[Json], list[OperationRefused]]:
    """Ask for each; a refusal does not hide those that have begun. If it is the only one it is raised, for its
    exit code."""
    operations, refused = [], []
    for request in requests:
        try:
            operations.append(client.carry_out(request))
        except OperationRefused as error:
            if len(requests) == 1:
                raise
            refused.append(error)
    return operations, refused


def _ended(client: Client, operations: list[Json]) -> list[Json]:
    """Wait until these have ended. If the wait ends before, say which ones are still running, and how to find them."""
    try:
        return [_end_of(client, operation) for operation in operations]
    except (KeyboardInterrupt, SnapreplayError):
        ids = ", ".join(each["id"] for each in operations)
        note(
            f"the wait ended early: {ids}. `snapreplay operations --url {client.url}` shows the result, and"
            f" `snapreplay cancel ID --url {client.url}` cancels the parts that have not begun"
        )
        raise


def _end_of(client: Client, operation: Json) -> Json:
    while operation["state"] == "running":
        time.sleep(POLL_S)  # between two questions to the service
        operation = client.operation(operation["id"])
    return operation


def _note_left_out(client: Client, operation: Json) -> None:
    """Name the partitions that were not live, so that the operation is not taken for one on all."""
    asked, others = {part["partition"] for part in operation["parts"]}, []
    with suppress(SnapreplayError):  # the operation has begun all the same, and is to be shown
        others = [each for each in client.restore_status("app")["partitions"] if each["partition"] not in asked]
    if others:
        named = ", ".join(f"{each['partition']} ({each['phase'] or 'unknown'})" for each in others)
        note(f"left out, as not known to be live by the process at {client.url}: partition {named}")


def _print_operations(operations: Sequence[Json]) -> None:
    from snapreplay.api.cli.output import console, table

    for each in operations:
        print(f"operation {each['id']}: {each['kind']} {each['state']}")
    columns = ("partition", "state", "snapshot_id", "detail")
    rows = [[part[name] for name in columns] for each in operations for part in each["parts"]]
    if rows:
        console().print(table(columns, rows, right="partition"))


VERBS: dict[type[Command], Callable[..., Any]] = {
    command: _verb(command) for command in COMMANDS if not issubclass(command, SavepointCommand | RedriveDeadLetters)
}
"""By command. Savepoints and dead letters need no service: `savepoint create`, `savepoint drop` and `redrive`."""
