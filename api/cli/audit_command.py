"""`snapreplay audit`: the Spark job's verdict over the two topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode, refused_unless_it_runs
from snapreplay.api.cli.options import (
    SPARK,
    AppOrId,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    app_id_of,
    settings_from,
)
from snapreplay.api.cli.output import (
    Format,
    console,
    print_error,
    print_json,
    table,
    written_whole,
)
from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.snapshots.proof.level import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from snapreplay.snapshots.proof.report import AuditReport


def register(app: typer.Typer) -> None:
    app.command("audit", rich_help_panel=SPARK)(audit)


def audit(
    app: AppOrId = None,
    *,
    app_id: Annotated[
        str | None, typer.Option("--app-id", metavar="NAME", help="Audit without the app's code.")
    ] = None,
    level: Annotated[
        Level,
        typer.Option("--level", help="What is proved. Each level includes those before it."),
    ] = Level.INTEGRITY,
    since_last: Annotated[
        bool,
        typer.Option(
            "--since-last",
            help="Prove only what came after the last proof, and record the new one in Kafka.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the report as an HTML page."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark cluster. Default: this process."),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Prove with Spark, from the topics alone, that the log is whole.

    Exit code 0: no findings; 1: findings; 2: could not run; 4: the proof could not be recorded."""
    from snapreplay.spark import audit as run_audit

    audited = _audited(app, app_id, level)
    settings = settings_from(config, overrides, bootstrap_servers)
    with refused_unless_it_runs(), written_whole(html) as file:
        report = run_audit(settings, audited, level, app, since_last=since_last, master=master)
        print_report(report, output)
        if report.not_recorded:
            print_error(f"the proof was not recorded: {report.not_recorded}", "")
        if file is not None:
            from snapreplay.api.audit_page import page

            file.write(page(report))
    raise typer.Exit(_exit_code(report))


def _audited(app: str | None, app_id: str | None, level: Level) -> str:
    audited = app_id_of("audit", app, app_id)
    if app is None and level is Level.REPLAY:
        raise UsageError(
            f"--level replay runs the handlers of {audited!r}, but --app-id names no code",
            hint="name the app instead: `snapreplay audit module:app --level replay`",
        )
    return audited


def _exit_code(report: AuditReport) -> ExitCode:
    if report.findings:
        return ExitCode.FINDINGS
    return ExitCode.OPERATOR if report.not_recorded else ExitCode.OK


def print_report(report: AuditReport, output: Format) -> None:
    """Print counts, notes, findings and decisions as tables with a verdict, or the report as one JSON document."""
    if output is Format.JSON:
        import msgspec

        print_json(msgspec.to_builtins(report))
        return
    out = console()
    counts = [
        *report.checked.items(),
        *((f"note: {name}", n) for name, n in report.notes.items() if n),
    ]
    out.print(table(("checked", "count"), ((name, f"{n:,}") for name, n in counts), right="count"))
    if report.findings:
        out.print(_listed(("check", "topic", "partition", "offset", "detail"), report.findings))
    if report.decisions:
        columns = ("partition", "offset", "finding", "by", "reason", "decided")
        out.print(_listed(columns, report.decisions))
    if report.since_last:
        _print_proofs(report)
    print(
        f"{report.app_id}: {len(report.findings) or 'no'} findings in"
        f" {counted(report.partition_count, 'partition')} ({report.seconds:.1f} s)"
    )


def _print_proofs(report: AuditReport) -> None:
    """What was audited of each partition, and what is proven now."""
    columns = ("partition", "batches audited", "proven to batch", "recorded", "why all of it")
    rows = (
        (
            each.partition,
            "none" if each.first_batch is None else f"{each.first_batch} to {each.last_batch}",
            None if each.proven is None else each.proven.batch,
            f"level {each.proven.level}" if each.proven and each.recorded else "no",
            each.audited_all_because,
        )
        for each in report.chains
    )
    console().print(table(columns, rows, right="partition"))


def _listed(columns: Sequence[str], facts: Iterable[object]) -> Table:
    """One row per fact, its attributes in the order of the columns."""
    rows = ([getattr(each, name) for name in columns] for each in facts)
    return table(columns, rows, right="partition offset")
