"""`snapreplay compact`: a Spark job folds the log into new snapshots and proposes them to the owners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import refused_unless_it_runs
from snapreplay.api.cli.options import (
    SPARK,
    AppOrId,
    BootstrapServers,
    Config,
    Output,
    Overrides,
    app_id_of,
    service_url,
    settings_from,
)
from snapreplay.api.cli.output import Format, console, note, print_json, table
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json
    from snapreplay.snapshots.jobs.outcomes import CompactionReport, PartitionResult


def register(app: typer.Typer) -> None:
    app.command("compact", rich_help_panel=SPARK)(compact)


def compact(
    app: AppOrId = None,
    *,
    app_id: Annotated[
        str | None, typer.Option("--app-id", metavar="NAME", help="Compact without the app's code.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="Longest wait for the owners to adopt or reject the proposals.",
        ),
    ] = 0.0,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Running service to tell of the proposals. Default: the owners find them.",
        ),
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
    """Make new snapshots with Spark, and propose them to the owners.

    A new snapshot is the newest one with all changes since then. Exit code 0: proposed, adopted or nothing to do;
    1: a partition got no proposal, or one was not adopted; 2: could not run."""
    from snapreplay.spark import compact as run

    compacted = app_id_of("compact", app, app_id)
    settings = settings_from(config, overrides, bootstrap_servers)
    with refused_unless_it_runs(), _owner(url, config) as owner:
        report = run(settings, compacted, app, wait_s=wait, owner=owner, master=master)
    print_report(report, output)
    raise typer.Exit(report.exit_code)


@contextmanager
def _owner(url: str | None, config: Path | None) -> Iterator[Service | None]:
    if url is None:
        yield None
        return
    from snapreplay.api.cli.client import Client

    with Client(service_url(url, None, config)) as client:
        yield Service(client)


class Service:
    """`answers.Owner`, asked over HTTP. A service that does not answer is noted and not asked again: an owner also
    looks for proposals by itself."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._operations: dict[int, str] = {}

    def tell(self, partition: int, manifest_offset: int) -> None:
        """See `Owner.tell`."""
        try:
            operation = self._client.adopt(partition, manifest_offset)
        except SnapreplayError as error:
            note(f"partition {partition}: its owner was not told: {error}")
            return
        self._operations[partition] = operation["id"]

    def rejection(self, partition: int, manifest_offset: int) -> str | None:
        """See `Owner.rejection`."""
        del manifest_offset
        operation_id = self._operations.get(partition)
        if operation_id is None:
            return None
        try:
            operation = self._client.operation(operation_id)
        except SnapreplayError as error:
            note(f"partition {partition}: its owner does not answer: {error}")
            del self._operations[partition]
            return None
        return _refusal(operation, partition)


def _refusal(operation: Json, partition: int) -> str | None:
    for part in operation["parts"]:
        if part["partition"] == partition and part["state"] == "failed":
            return str(part["detail"])
    return None


_BRIDGED = "the digest of a later batch shows that no change is missing"


def print_report(report: CompactionReport, output: Format) -> None:
    """Print a row per partition and a verdict, or the report as one JSON document."""
    if output is Format.JSON:
        import msgspec

        print_json(msgspec.to_builtins(report))
        return
    columns = ("partition", "outcome", "batch", "batches", "entries", "chunks", "bytes", "snapshot")
    rows = (_row(each) for each in report.partitions)
    right = "partition batch batches entries chunks bytes"
    console().print(table(columns, rows, right=right))
    for each in report.partitions:
        for offset in each.bridged:
            print(
                f"partition {each.partition}: the increment at offset {offset} cannot be read; {_BRIDGED}"
            )
        if each.reason:
            print(f"partition {each.partition}: {each.reason}")
        if each.hint:
            print(f" hint: {each.hint}")
    outcomes = [each.outcome for each in report.partitions]
    said = ", ".join(f"{outcomes.count(o)} {o}" for o in dict.fromkeys(outcomes))
    print(
        f"{report.app_id}: {counted(len(report.partitions), 'partition')}: {said or 'none'}"
        f" ({report.seconds:.1f} s)"
    )


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
