"""`snapreplay redrive`: dead letters back to their inputs, once each."""

from __future__ import annotations

from typing import Annotated

import typer

from snapreplay.api.cli.options import (
    OPERATE,
    AppName,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.counted import counted


def register(app: typer.Typer) -> None:
    app.command("redrive", rich_help_panel=OPERATE)(redrive)


def redrive(
    app: AppName,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent; write nothing.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Send the dead letters back to the inputs that they came from, each exactly once."""
    import asyncio

    from snapreplay.app.load import load_app
    from snapreplay.service.redrive import redrive as redrive_app

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    done = asyncio.run(redrive_app(program, settings, dry_run=dry_run))
    if output is Format.JSON:
        sent = [
            {"topic": place.topic, "partition": place.partition, "records": count}
            for place, count in sorted(done.sent.items())
        ]
        print_json({"dry_run": dry_run, "sent": sent, "left": done.left})
        return
    for line in done.left:
        note(f"left: {line}")
    would = "would be sent" if dry_run else "sent"
    for place, count in sorted(done.sent.items()):
        print(f"{would} back to {place}: {counted(count, 'record')}")
    if not done.sent and not done.left:
        print("no dead letters to send back")
