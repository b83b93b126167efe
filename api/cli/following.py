"""Operations that a command has begun: waits for them, and prints what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import typer

from snapreplay.api.cli.exits import ExitCode, OperationRefused
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.errors import SnapreplayError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

POLL_S = 0.2
T = TypeVar("T", int, str)


def follow(client: Client, operation: Json, wait: bool, output: Format) -> None:
    """Print an operation, at its end if that is to be awaited, and end with 1 if it failed."""
    if wait:
        (operation,) = ended(client, [operation])
    print_operation(operation, output)
    if operation["state"] == "failed":
        raise typer.Exit(ExitCode.FINDINGS)


def follow_all(client: Client, names: list[T], ask: Callable[[T], Json], wait: bool, output: Format) -> None:
    """Ask for one operation of each partition or process, and print them as `follow` does."""
    operations, refused = _begun(sorted(set(names)), ask)
    if wait:
        operations = ended(client, operations)
    if output is Format.JSON:
        print_json({"items": operations})
    else:
        _print_parts([part for operation in operations for part in operation["parts"]])
        for each in operations:
            if not each["parts"]:
                print(f"operation {each['id']}: {each['kind']} {each['state']}")
    for error in refused:
        note(str(error))
    if refused or any(operation["state"] == "failed" for operation in operations):
        raise typer.Exit(ExitCode.FINDINGS)


def _begun(names: list[T], ask: Callable[[T], Json]) -> tuple[list[Json], list[OperationRefused]]:
    """Ask for each; a refusal does not hide those that have begun. If it is the only one it is raised, for its
    exit code."""
    operations, refused = [], []
    for name in names:
        try:
            operations.append(ask(name))
        except OperationRefused as error:
            if len(names) == 1:
                raise
            refused.append(error)
    return operations, refused


def ended(client: Client, operations: list[Json]) -> list[Json]:
    """Wait until these have ended. If the wait ends before, it is said which ones go on, and how to find them again."""
    try:
        return [_end_of(client, operation) for operation in operations]
    except (KeyboardInterrupt, SnapreplayError):
        ids = ", ".join(each["id"] for each in operations)
        note(
            f"not waited for to the end: {ids}. `snapreplay operations --url {client.url}` shows what became of it, and"
            f" `snapreplay cancel ID --url {client.url}` cancels what has not begun"
        )
        raise


def _end_of(client: Client, operation: Json) -> Json:
    while operation["state"] == "running":
        time.sleep(POLL_S)  # between two questions to the service
        operation = client.operation(operation["id"])
    return operation


def note_left_out(client: Client, operation: Json) -> None:
    """Name the partitions that were not live: nobody shall take the operation for one on all."""
    asked, others = {part["partition"] for part in operation["parts"]}, []
    with suppress(SnapreplayError):  # the operation has begun all the same, and is to be shown
        others = [each for each in client.restore_status("app")["partitions"] if each["partition"] not in asked]
    if others:
        named = ", ".join(f"{each['partition']} ({each['phase'] or 'unknown'})" for each in others)
        note(f"left out, as not known to be live by the process at {client.url}: partition {named}")


def print_operation(operation: Json, output: Format) -> None:
    if output is Format.JSON:
        print_json(operation)
        return
    print(f"operation {operation['id']}: {operation['state']}")
    _print_parts(operation["parts"], "snapshot_id")


def _print_parts(parts: list[Json], *more: str) -> None:
    if not parts:  # none was due
        return
    from snapreplay.api.cli.output import console, table

    columns = ("partition", "state", *more, "detail")
    rows = ([part[name] for name in columns] for part in parts)
    console().print(table(columns, rows, right="partition"))
