"""`snapreplay accept`: the way out of a FAILED partition that only a person can decide on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
from snapreplay.app.ways import look_again

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings
    from snapreplay.service.decisions.accept import Proposal
    from snapreplay.service.publish.state import Begun


def register(app: typer.Typer) -> None:
    app.command("accept", rich_help_panel=OPERATE)(accept)


def accept(
    app: AppName,
    *,
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=0, help="The FAILED partition.")
    ],
    finding: Annotated[
        str,
        typer.Option(
            "--finding", metavar="ID", help="Id of the finding, from the hint of the failure."
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the log keeps it.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Accept what a recovery found, and let the partition continue from there.

    The log keeps who decided it, when and why. Run `snapreplay retry` afterwards."""
    import asyncio

    from snapreplay.app.load import load_app

    program = load_app(app)
    settings = settings_from(config, overrides, bootstrap_servers)
    asyncio.run(_accept(program, settings, partition, finding, reason, dry_run, output))


async def _accept(
    program: App[object],
    settings: Settings,
    partition: int,
    finding: str,
    reason: str,
    dry_run: bool,
    output: Format,
) -> None:
    from snapreplay.service.decisions.accept import carry_out, propose
    from snapreplay.service.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(settings)

    def tell(news: str) -> None:
        note(f"partition {partition}: {news}")

    proposal = await propose(program, settings, cluster, partition, finding, reason, tell)
    if output is Format.TABLE:
        _print_proposal(proposal)
    if not dry_run:
        tell("writing the snapshot and the decision")
    accepted = None if dry_run else await carry_out(proposal)
    if output is Format.JSON:
        print_json(_document(proposal, accepted))
    else:
        print(_outcome(proposal, accepted))


def _print_proposal(proposal: Proposal) -> None:
    print(f"partition {proposal.partition}: {proposal.finding_id}")
    print(f"  {proposal.problem}")
    for line in proposal.plan:
        print(f"  - {line}")
    print(f"  by {proposal.decision['by']}: {proposal.decision['reason']}", flush=True)


def _outcome(proposal: Proposal, accepted: Begun | None) -> str:
    if accepted is None:
        return "dry run: nothing was written"
    return (
        f"accepted: increment {accepted.increment.batch} at offset {accepted.offset}, snapshot"
        f" {accepted.snapshot_id}. Now run {look_again(proposal.partition)}"
    )


def _document(proposal: Proposal, accepted: Begun | None) -> dict[str, object]:
    return {
        "partition": proposal.partition,
        "finding": proposal.finding_id,
        "problem": proposal.problem,
        "plan": list(proposal.plan),
        "reason": proposal.decision["reason"],
        "by": proposal.decision["by"],
        "dry_run": accepted is None,
        "batch": accepted.increment.batch if accepted else None,
        "offset": accepted.offset if accepted else None,
        "snapshot_id": accepted.snapshot_id if accepted else None,
    }
