"""Commands that ask a running service: what it does, what is planned, its settings; and let it do something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from snapreplay.api.cli.exits import ExitCode, OperationRefused
from snapreplay.api.cli.following import follow, follow_all, note_left_out, print_operation
from snapreplay.api.cli.options import Output, Probed, Running
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.errors import SnapreplayError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

LivePartitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="State partition; repeatable. Default: all live.")
]
FailedPartitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="State partition; repeatable. Default: all failed.")
]
PausedPartitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="State partition; repeatable. Default: all paused.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the operation has ended.")]


class ZeroOrOne(TyperCommand):
    """Ends with 1 also for a wrong command line and wrong settings, because a container runtime reads the code."""

    def parse_args(self, *arguments: Any) -> list[str]:
        try:
            return super().parse_args(*arguments)
        except typer.Exit:  # --help
            raise
        except Exception as error:  # typer does not export the class that it raises for a wrong call
            raise OperationRefused(
                getattr(error, "format_message", error.__str__)(),
                hint="see `snapreplay health --help`",
                code=ExitCode.FINDINGS,
            ) from error

    def invoke(self, *arguments: Any) -> Any:
        try:
            return super().invoke(*arguments)
        except SnapreplayError as error:
            note(str(error))
            raise typer.Exit(ExitCode.FINDINGS) from error


def restore_status(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until every partition is live or failed.")] = False,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Show how far each partition of a running app is on its way to live. Any process may be asked.

    Exit code 0: all are live; 1: a partition failed; 5: not all are live yet, or none is assigned."""
    from snapreplay.api.cli import restore_view

    with client:
        if watch:
            raise typer.Exit(restore_view.follow(client, output))
        status = client.restore_status()
    _end(status, output, lambda found: restore_view.print_status(found, client.with_url), restore_view.exit_code)


def _end(found: Json, output: Format, show: Callable[[Json], None], exit_code: Callable[[Json], ExitCode]) -> NoReturn:
    """Print what was found, and end with what it says."""
    if output is Format.JSON:
        print_json(found)
    else:
        show(found)
    raise typer.Exit(exit_code(found))


def plan(*, client: Running, output: Output = Format.TABLE) -> None:
    """Show what a recovery of each partition would do now, and how long it would take.

    Exit code 0: each could be restored; 1: one could not; 5: not all were looked at yet."""
    from snapreplay.api.cli import plan_view

    with client:
        plans = client.restore_plan()
    _end(plans, output, plan_view.print_plans, plan_view.exit_code)


def lag(*, client: Running, output: Output = Format.TABLE) -> None:
    """Show how far each input is processed: the lag to its last stable offset and the one to its high watermark. Also
    show which transaction holds an input back, and how long it has been open.

    Exit code 0: nothing is held back; 1: an input is; 5: a lag is not known yet."""
    from snapreplay.api.cli import lag_view

    with client:
        partitions = client.partitions()
    _end(partitions, output, lag_view.print_lags, lag_view.exit_code)


def config(*, client: Running, output: Output = Format.TABLE) -> None:
    """Show the settings that a running process uses, and where each was given. Secrets are masked."""
    from snapreplay.api.cli.output import console, table

    with client:
        answer = client.config()
    if output is Format.JSON:
        print_json(answer)
        return
    columns = ("name", "value", "origin")
    rows = [[str(each[name]) for name in columns] for each in answer["items"][0]["settings"]]
    console().print(table(columns, rows))


def trigger_snapshot(
    *,
    partition: LivePartitions = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the operation.")] = "",
    wait: Wait = False,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Write full snapshots; processing continues meanwhile."""
    with client:
        operation = client.trigger_snapshot(partition or None, reason)
        if not partition:
            note_left_out(client, operation)
        follow(client, operation, wait, output)


def adopt(
    *,
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="State partition.")],
    manifest_offset: Annotated[
        int, typer.Option("--manifest-offset", min=0, help="Offset of the manifest in the snapshots topic.")
    ],
    wait: Wait = False,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Let the owner of a partition judge a snapshot that a job proposes.

    Processing continues meanwhile. Exit code with --wait: 0 adopted, 1 rejected."""
    with client:
        follow(client, client.adopt(partition, manifest_offset), wait, output)


def retry(
    *, partition: FailedPartitions = None, wait: Wait = False, client: Running, output: Output = Format.TABLE
) -> None:
    """Let failed partitions recover again, after the cause was repaired or accepted."""
    with client:
        follow_all(client, partition or _failed(client), client.retry, wait, output)


def pause(
    *,
    partition: Annotated[list[int], typer.Option("--partition", "-p", min=0, help="State partition; repeatable.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; shown for as long as it is paused.")] = "",
    wait: Wait = False,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Process nothing more of these partitions until `resume`, whatever is restarted meanwhile.

    They stay live, and can be read. The batch under way is committed."""
    with client:
        follow_all(client, partition, lambda number: client.pause(number, reason), wait, output)


def resume(
    *, partition: PausedPartitions = None, wait: Wait = False, client: Running, output: Output = Format.TABLE
) -> None:
    """Process paused partitions again, from the next record on."""
    with client:
        follow_all(client, partition or _paused(client), client.resume, wait, output)


def drill(
    *, partition: LivePartitions = None, wait: Wait = False, client: Running, output: Output = Format.TABLE
) -> None:
    """Restore live partitions into a store that is thrown away, and compare the digests.

    Processing continues meanwhile. Exit code with --wait: 0 the same state, 1 another one, or given up."""
    with client:
        follow_all(client, partition or _in_phase(client, "live", "no partition is live"), client.drill, wait, output)


OnHost = Annotated[
    str, typer.Option("--host", metavar="NAME", help="All processes of the app on this host. Default: the one asked.")
]


def drain(
    *,
    host: OnHost = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; shown as long as the process is drained.")] = "",
    wait: Wait = False,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Give the partitions of a process to the others, before maintenance. It stays up and takes none until `undrain`.

    Processes with warm copies take over first. Refused if no other process would take the partitions."""
    with client:
        follow_all(client, _processes(client, host), lambda each: client.drain(each, reason), wait, output)


def undrain(*, host: OnHost = "", client: Running, output: Output = Format.TABLE) -> None:
    """Let a drained process take partitions again."""
    with client:
        follow_all(client, _processes(client, host), client.undrain, False, output)


def _processes(client: Client, host: str) -> list[str]:
    processes = client.processes()
    found = [each["process_id"] for each in processes if (each["host"] == host if host else each["state"] == "self")]
    if not found:
        known = ", ".join(sorted({each["host"] for each in processes}))
        raise OperationRefused(
            f"no process of the app is on host {host}", hint=f"hosts with processes: {known}", code=ExitCode.REFUSED
        )
    return found


def cancel(
    operation: Annotated[str, typer.Argument(metavar="ID", help="The id of the operation, as printed.")],
    *,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """Cancel what has not begun of an operation: a waiting snapshot or retry, a drill, a drain, a savepoint.

    Exit code 1: it has ended, or cannot be cancelled."""
    with client:
        print_operation(client.cancel(operation), output)


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


def health(
    *, ready: Annotated[bool, typer.Option("--ready", help="Ask /readyz instead of /healthz.")] = False, client: Probed
) -> None:
    """Check the health of a running service, for a container.

    Exit code 0: healthy; 1: not healthy, or nothing answers."""
    with client:
        probe = client.probe("/readyz" if ready else "/healthz")
    failing = [check for check in probe.get("checks", ()) if not check["ok"]]
    for check in failing:
        note(f"{check['name']}: {check['detail'] or 'not ok'}")
    raise typer.Exit(ExitCode.OK if probe.get("status") == "ok" else ExitCode.FINDINGS)
