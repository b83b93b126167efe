"""`snapreplay doctor`: finds what could go wrong before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode, refused_unless_it_runs
from snapreplay.api.cli.options import (
    OPERATE,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, console, print_json, table

if TYPE_CHECKING:
    from snapreplay.service.doctor.report import DoctorReport


def register(app: typer.Typer) -> None:
    app.command("doctor", rich_help_panel=OPERATE)(doctor)


def doctor(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]",
            help="module:app or path/to/file.py. Without it, only the cluster is examined.",
        ),
    ] = None,
    *,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Examine brokers, topics, permissions, open transactions and state, and say what to repair.

    Exit code 0: no findings; 1: findings; 2: could not run."""
    with refused_unless_it_runs():
        report = _run(app, bootstrap_servers, config, overrides)
    print_report(report, output)
    raise typer.Exit(ExitCode.FINDINGS if report.findings else ExitCode.OK)


def _run(
    app: str | None,
    bootstrap_servers: BootstrapServers,
    config: Config,
    overrides: Overrides,
) -> DoctorReport:
    import asyncio

    from snapreplay.app.load import load_app

    program = load_app(app) if app is not None else None
    settings = settings_from(config, overrides, bootstrap_servers)
    # After the app was loaded: a wrong name is answered before the Kafka client is imported.
    from snapreplay.service.doctor.collect import examine

    return asyncio.run(examine(program, settings))


def print_report(report: DoctorReport, output: Format) -> None:
    """Print what was looked at and each finding with its remedy, or one JSON document."""
    if output is Format.JSON:
        import msgspec

        print_json(msgspec.to_builtins(report))
        return
    out = console()
    looked_at = ((name, f"{count:,}") for name, count in report.looked_at.items())
    out.print(table(("looked at", "count"), looked_at, right="count"))
    for finding in report.findings:
        out.print(f"{finding.check}: {finding.where}", style="bold", markup=False)
        out.print(f"  {finding.problem}", markup=False, soft_wrap=True)
        out.print(f"  remedy: {finding.remedy}", markup=False, soft_wrap=True)
    print(
        f"{report.app_id or 'cluster'}: {len(report.findings) or 'no'} findings"
        f" ({report.seconds:.1f} s)"
    )
