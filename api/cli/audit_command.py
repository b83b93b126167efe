"""`snapreplay audit`: the Spark job's verdict over the two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.options import (
    BootstrapServers,
    Config,
    Output,
    Overrides,
    settings_from,
)
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.snapshots.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.snapshots.jobs.audit import AuditReport


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="module:app or path; or use --app-id.")
    ] = None,
    *,
    app_id: Annotated[
        str | None, typer.Option("--app-id", help="Audit without the app's code.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Prove with Spark, from the topics alone, that what was written is whole. 0 fine, 1 findings."""
    audited = _app_id(app, app_id)
    settings = settings_from(config, overrides, bootstrap_servers)
    try:
        from snapreplay.snapshots.jobs.audit import audit as run_audit
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "pyarrow", "pandas"}:
            raise
        raise UsageError(
            f"the audit needs Spark: {error.name} is not installed",
            hint="pip install 'snapreplay[spark]', and a Java runtime 17 or newer",
        ) from error
    kafka = {name: str(value) for name, value in settings.kafka.items()}
    servers = kafka.pop("bootstrap.servers")
    report = run_audit(servers, audited, kafka)
    _print_report(report, output)
    raise typer.Exit(ExitCode.FINDINGS if report.findings else ExitCode.OK)


def _app_id(app: str | None, app_id: str | None) -> str:
    if (app is None) == (app_id is None):
        raise UsageError(
            "audit needs either an app or an app id",
            hint="snapreplay audit module:app, or snapreplay audit --app-id NAME",
        )
    if app_id is not None:
        return app_id
    from snapreplay.snapshots.program.load import load_app

    return load_app(str(app)).app_id
