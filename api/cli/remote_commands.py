"""Commands that ask a running service: restore-status, trigger-snapshot, health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.options import Config, Output, Url, service_url
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.snapshots.errors import SnapreplayError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

POLL_S = 0.2


def register(app: typer.Typer) -> None:
    app.command("restore-status")(restore_status)
    app.command("trigger-snapshot")(trigger_snapshot)
    app.command("health")(health)


def restore_status(
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow until every partition is live or failed.")
    ] = False,
    url: Url = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show where every partition of a running service is on its way to live."""
    from snapreplay.api.cli import restore_view
    from snapreplay.api.cli.client import Client
    from snapreplay.api.cli.watch import follow

    with Client(service_url(url, config)) as client:
        if watch:
            raise typer.Exit(follow(client, output))
        status = client.restore_status()
    if output is Format.JSON:
        print_json(status)
    else:
        restore_view.print_status(status)


def trigger_snapshot(
    *,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Repeatable; default: all that are live."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the snapshot.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until it has succeeded or failed.")] = False,
    url: Url = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Write full snapshots now; processing goes on meanwhile."""
    from snapreplay.api.cli.client import Client

    with Client(service_url(url, config)) as client:
        operation = client.trigger_snapshot(partition or None, reason)
        if wait:
            operation = _ended(client, operation)
    _print_operation(operation, output)
    if operation["state"] == "failed":
        raise typer.Exit(ExitCode.FINDINGS)


def _ended(client: Client, operation: Json) -> Json:
    while operation["state"] == "running":
        time.sleep(POLL_S)  # between two questions to the service
        operation = client.operation(operation["id"])
    return operation


def _print_operation(operation: Json, output: Format) -> None:
    from snapreplay.api.cli.output import console, table

    if output is Format.JSON:
        print_json(operation)
        return
    print(f"operation {operation['id']}: {operation['state']}")
    columns = ("partition", "state", "snapshot_id", "detail")
    rows = ([part[name] for name in columns] for part in operation["parts"])
    console().print(table(columns, rows, right="partition"))


def health(
    *,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it is ready, not whether it lives.")
    ] = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """For a container's health check: exit code 0 healthy, 1 not (also when nobody answers)."""
    from snapreplay.api.cli.client import Client

    try:
        with Client(service_url(url, config)) as client:
            probe = client.probe("/readyz" if ready else "/healthz")
    except SnapreplayError as error:  # wrong settings, too: others read this code
        note(str(error))
        raise typer.Exit(ExitCode.FINDINGS) from error
    failing = [check for check in probe.get("checks", ()) if not check["ok"]]
    for check in failing:
        note(f"{check['name']}: {check['detail'] or 'not ok'}")
    raise typer.Exit(ExitCode.OK if probe.get("status") == "ok" else ExitCode.FINDINGS)
