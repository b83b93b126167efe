"""The commands that prove and compact: audit gives a verdict over the two topics, compact proposes new snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapreplay.api.cli import options
from snapreplay.api.cli.options import app_id_of
from snapreplay.api.cli.output import ExitCode, Format, console, print_json, table
from snapreplay.counted import counted, counted_or_no
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from snapreplay.snapshots.jobs.compaction import CompactionReport, PartitionResult
    from snapreplay.snapshots.proof.report import AuditReport


def audit(
    app: options.AppOrId = None,
    *,
    app_id: options.AppIdAlone = None,
    level: options.ProofLevel = "integrity",
    engine: options.Engine = "spark",
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Prove, from the topics alone, that the log is whole.

    Exit code 0: no findings; 1: findings; 2: could not run."""
    from snapreplay.snapshots.proof.report import Level

    audited, proved = audited_app(app, app_id, level), Level(level)
    if engine == "python":
        from snapreplay.service.blocking import BlockingReader
        from snapreplay.snapshots.jobs.audit import audit as in_this_process
        from snapreplay.snapshots.jobs.audit import replayable

        replayed = replayable(audited, app) if proved is Level.REPLAY else None
        with BlockingReader(settings) as reader:
            report = in_this_process(reader, audited, proved, replayed)
    else:
        from snapreplay.spark import audit as with_spark

        report = with_spark(settings, audited, proved, app)
    print_audit(report, output)
    return ExitCode(report.exit_code)


def audited_app(app: str | None, app_id: str | None, level: str) -> str:
    audited = app_id_of("audit", app, app_id)
    if app is None and level == "replay":
        raise UsageError(
            f"--level replay runs the handlers of {audited!r}, but --app-id names no code",
            hint="name the app instead: `snapreplay audit module:app --level replay`",
        )
    return audited


def print_audit(report: AuditReport, output: Format) -> None:
    """Print counts, notes, findings and decisions as tables with a verdict, or the report as one JSON document."""
    if output is Format.JSON:
        print_json(report)
        return
    out = console()
    counts = [*report.checked.items(), *((f"note: {name}", n) for name, n in report.notes.items() if n)]
    out.print(table(("checked", "count"), ((name, f"{n:,}") for name, n in counts), right="count"))
    if report.findings:
        out.print(_listed(("check", "topic", "partition", "offset", "detail"), report.findings))
    if report.decisions:
        columns = ("partition", "offset", "finding", "by", "reason", "decided")
        out.print(_listed(columns, report.decisions))
    print(
        f"{report.app_id}: {counted_or_no(len(report.findings), 'finding')} in"
        f" {counted(report.partition_count, 'partition')} ({report.seconds:.1f} s)"
    )


def _listed(columns: Sequence[str], facts: Iterable[object]) -> Table:
    """List one row per fact, its attributes in the order of the columns."""
    rows = ([getattr(each, name) for name in columns] for each in facts)
    return table(columns, rows, right="partition offset")


def compact(
    app: options.AppOrId = None,
    *,
    app_id: options.AppIdAlone = None,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Make new snapshots with Spark, and propose them to the owners.

    A new snapshot is the newest one with all changes since then. Exit code 0: proposed, or nothing to do;
    1: a partition cannot be proven; 2: could not run."""
    from snapreplay.spark import compact as run

    compacted = app_id_of("compact", app, app_id)
    report = run(settings, compacted)
    print_compaction(report, output)
    return ExitCode(report.exit_code)


_BRIDGED = "the digest of a later batch shows that no change is missing"


def print_compaction(report: CompactionReport, output: Format) -> None:
    """Print a row per partition and a verdict, or the report as one JSON document."""
    if output is Format.JSON:
        print_json(report)
        return
    columns = ("partition", "outcome", "batch", "batches", "entries", "chunks", "bytes", "snapshot")
    rows = (_row(each) for each in report.partitions)
    right = "partition batch batches entries chunks bytes"
    console().print(table(columns, rows, right=right))
    for each in report.partitions:
        for offset in each.bridged:
            print(f"partition {each.partition}: the increment at offset {offset} cannot be read; {_BRIDGED}")
        if each.reason:
            print(f"partition {each.partition}: {each.reason}")
        if each.hint:
            print(f" hint: {each.hint}")
    outcomes = [each.outcome for each in report.partitions]
    said = ", ".join(f"{outcomes.count(o)} {o}" for o in dict.fromkeys(outcomes))
    print(f"{report.app_id}: {counted(len(report.partitions), 'partition')}: {said or 'none'} ({report.seconds:.1f} s)")


def _row(result: PartitionResult) -> list[object]:
    if not result.snapshot_id:
        return [result.partition, result.outcome, *[None] * 6]
    return [
        result.partition,
        result.outcome,
        result.batch,
        result.batches,
        f"{result.entries:,}",
        result.chunks,
        f"{result.size_bytes:,}",
        result.snapshot_id,
    ]
