"""`snapreplay audit`: the Spark job's verdict over the two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode, refused_unless_it_runs
from snapreplay.api.cli.options import BootstrapServers, Config, Output, Overrides, settings_from
from snapreplay.api.cli.output import Format, console, print_json, table
from snapreplay.counted import counted
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from snapreplay.service.config.settings import Settings
    from snapreplay.snapshots.jobs.report import AuditReport


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="module:app or a path; or use --app-id.")
    ] = None,
    *,
    app_id: Annotated[
        str | None, typer.Option("--app-id", metavar="NAME", help="Audit without the app's code.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Prove with Spark, from the topics alone, that what was written is whole."""
    audited = _app_id(app, app_id)
    settings = settings_from(config, overrides, bootstrap_servers)
    with refused_unless_it_runs():
        report = _run(audited, settings)
    print_report(report, output)
    raise typer.Exit(ExitCode.FINDINGS if report.findings else ExitCode.OK)


def _app_id(app: str | None, app_id: str | None) -> str:
    if (app is None) == (app_id is None):
        raise UsageError(
            "audit needs either an app or an app id",
            hint="run `snapreplay audit module:app` or `snapreplay audit --app-id NAME`",
        )
    if app_id is not None:
        return app_id
    from snapreplay.app.load import load_app

    return load_app(str(app)).app_id


def _run(app_id: str, settings: Settings) -> AuditReport:
    try:
        from snapreplay.snapshots.jobs.audit import audit as run_audit
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"pyspark", "pyarrow", "pandas"}:
            raise
        raise UsageError(
            f"the audit needs Spark, but {missing} is not installed",
            hint="`pip install 'snapreplay[spark]'`, and install a Java runtime, version 17 or newer",
        ) from error
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    return run_audit(kafka.pop("bootstrap.servers"), app_id, kafka)


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
    print(
        f"{report.app_id}: {len(report.findings) or 'no'} findings in"
        f" {counted(report.partition_count, 'partition')} ({report.seconds:.1f} s)"
    )


def _listed(columns: Sequence[str], facts: Iterable[object]) -> Table:
    """One row per fact, its attributes in the order of the columns."""
    rows = ([getattr(each, name) for name in columns] for each in facts)
    return table(columns, rows, right="partition offset")
