"""The command `snapreplay doctor`: finds what could go wrong before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.options import LoadedIfNamed, OfCluster, Output
from snapreplay.api.cli.output import Format, console, print_json, table
from snapreplay.counted import counted_or_no

if TYPE_CHECKING:
    from snapreplay.service.doctor.report import DoctorReport


async def doctor(app: LoadedIfNamed, *, settings: OfCluster, output: Output = Format.TABLE) -> None:
    """Examine brokers, topics, permissions, open transactions and state, and say what to repair.

    Exit code 0: no findings; 1: findings; 2: could not run."""
    from snapreplay.service.doctor.collect import examine

    report = await examine(app, settings)
    print_report(report, output)
    raise typer.Exit(ExitCode.FINDINGS if report.findings else ExitCode.OK)


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
        f"{report.app_id or 'cluster'}: {counted_or_no(len(report.findings), 'finding')}"
        f" ({report.seconds:.1f} s)"
    )
