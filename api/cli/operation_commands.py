"""Commands that let a running service do something: each begins operations, prints them and, if it is to wait, what
became of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from snapreplay.api.cli import options
from snapreplay.api.cli.exits import ExitCode, OperationRefused
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.errors import SnapreplayError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

POLL_S = 0.2
T = TypeVar("T", int, str)


def trigger_snapshot(
    *,
    partition: options.LivePartitions = None,
    reason: options.SnapshotReason = "",
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Write full snapshots; processing continues meanwhile."""
    with client:
        operation = client.trigger_snapshot(partition or None, reason)
        if not partition:
            _note_left_out(client, operation)
        return _follow(client, operation, wait, output)


def adopt(
    *,
    partition: options.AdoptingPartition,
    manifest_offset: options.ManifestOffset,
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Let the owner of a partition judge a snapshot that a job proposes.

    Processing continues meanwhile. Exit code with --wait: 0 adopted, 1 rejected."""
    with client:
        return _follow(client, client.adopt(partition, manifest_offset), wait, output)


def retry(
    *,
    partition: options.FailedPartitions = None,
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Let failed partitions recover again, after the cause was repaired or accepted."""
    with client:
        return _follow_all(client, partition or _failed(client), client.retry, wait, output)


def pause(
    *,
    partition: options.SomePartitions,
    reason: options.PauseReason = "",
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Process nothing more of these partitions until `resume`, whatever is restarted meanwhile.

    They stay live, and can be read. The batch under way is committed."""
    with client:
        return _follow_all(client, partition, lambda number: client.pause(number, reason), wait, output)


def resume(
    *,
    partition: options.PausedPartitions = None,
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Process paused partitions again, from the next record on."""
    with client:
        return _follow_all(client, partition or _paused(client), client.resume, wait, output)


def drill(
    *,
    partition: options.LivePartitions = None,
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Restore live partitions into a store that is thrown away, and compare the digests.

    Processing continues meanwhile. Exit code with --wait: 0 the same state, 1 another one, or given up."""
    with client:
        return _follow_all(
            client, partition or _in_phase(client, "live", "no partition is live"), client.drill, wait, output
        )


def drain(
    *,
    host: options.OnHost = "",
    reason: options.DrainReason = "",
    wait: options.Wait = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Give the partitions of a process to the others, before maintenance. It stays up and takes none until `undrain`.

    Processes with warm copies take over first. Refused if no other process would take the partitions."""
    with client:
        return _follow_all(client, _processes(client, host), lambda each: client.drain(each, reason), wait, output)


def undrain(*, host: options.OnHost = "", client: options.Running, output: options.Output = Format.TABLE) -> ExitCode:
    """Let a drained process take partitions again."""
    with client:
        return _follow_all(client, _processes(client, host), client.undrain, False, output)


def _processes(client: Client, host: str) -> list[str]:
    processes = client.processes()
    found = [each["process_id"] for each in processes if (each["host"] == host if host else each["state"] == "self")]
    if not found:
        known = ", ".join(sorted({each["host"] for each in processes}))
        raise OperationRefused(
            f"no process of the app is on host {host}", hint=f"hosts with processes: {known}", code=ExitCode.REFUSED
        )
    return found


def cancel(operation: options.OperationId, *, client: options.Running, output: options.Output = Format.TABLE) -> None:
    """Cancel what has not begun of an operation: a waiting snapshot or retry, a drill, a drain, a savepoint.

    Exit code 1: it has ended, or cannot be cancelled."""
    with client:
        _print_operation(client.cancel(operation), output)


def _failed(client: Client) -> list[int]:
    return _in_phase(client, "failed", "no partition has failed: there is nothing to retry")


def _in_phase(client: Client, phase: str, nothing: str) -> list[int]:
    partitions = client.restore_status()["partitions"]
    found = [each["partition"] for each in partitions if each["phase"] == phase]
    if not found:
        raise OperationRefused(
            f"as the process at {client.url} knows, {nothing}",
            hint=client.with_url("`snapreplay restore-status` shows their phases"),
            code=ExitCode.FINDINGS,
        )
    return found


def _paused(client: Client) -> list[int]:
    partitions = client.restore_status()["partitions"]
    paused = [each["partition"] for each in partitions if each["paused_since"]]
    if not paused:
        raise OperationRefused(
            f"no partition is paused, as the process at {client.url} knows",
            hint=client.with_url("`snapreplay restore-status` shows which are"),
            code=ExitCode.FINDINGS,
        )
    return paused


def _follow(client: Client, operation: Json, wait: bool, output: Format) -> ExitCode:
    """Print an operation, at its end if that is to be awaited, and return 1 if it failed."""
    if wait:
        (operation,) = _ended(client, [operation])
    _print_operation(operation, output)
    return ExitCode.FINDINGS if operation["state"] == "failed" else ExitCode.OK


def _follow_all(client: Client, names: list[T], ask: Callable[[T], Json], wait: bool, output: Format) -> ExitCode:
    """Ask for one operation of each partition or process, and print them as `_follow` does."""
    operations, refused = _begun(sorted(set(names)), ask)
    if wait:
        operations = _ended(client, operations)
    if output is Format.JSON:
        print_json({"items": operations})
    else:
        _print_parts([part for operation in operations for part in operation["parts"]])
        for each in operations:
            if not each["parts"]:
                print(f"operation {each['id']}: {each['kind']} {each['state']}")
    for error in refused:
        note(str(error))
    is_failed = refused or any(operation["state"] == "failed" for operation in operations)
    return ExitCode.FINDINGS if is_failed else ExitCode.OK


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


def _ended(client: Client, operations: list[Json]) -> list[Json]:
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


def _note_left_out(client: Client, operation: Json) -> None:
    """Name the partitions that were not live: nobody shall take the operation for one on all."""
    asked, others = {part["partition"] for part in operation["parts"]}, []
    with suppress(SnapreplayError):  # the operation has begun all the same, and is to be shown
        others = [each for each in client.restore_status("app")["partitions"] if each["partition"] not in asked]
    if others:
        named = ", ".join(f"{each['partition']} ({each['phase'] or 'unknown'})" for each in others)
        note(f"left out, as not known to be live by the process at {client.url}: partition {named}")


def _print_operation(operation: Json, output: Format) -> None:
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
