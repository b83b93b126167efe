"""The command `snapreplay accept`: the way out of a FAILED partition that only a person can decide on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.options import Loaded, OfCluster, Output
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.app.ways import look_again

if TYPE_CHECKING:
    from snapreplay.service.decisions.accept import Acceptance
    from snapreplay.service.publish.state import Begun


async def accept(
    app: Loaded,
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
    settings: OfCluster,
    output: Output = Format.TABLE,
) -> None:
    """Accept what a recovery found, and let the partition continue from there.

    The log keeps who decided it, when and why. Run `snapreplay retry` afterwards."""
    from snapreplay.service.decisions.accept import carry_out, propose
    from snapreplay.service.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(settings)

    def tell(news: str) -> None:
        note(f"partition {partition}: {news}")

    acceptance = await propose(app, settings, cluster, partition, finding, reason, tell)
    if output is Format.TABLE:
        _print_plan(acceptance)
    if not dry_run:
        tell("writing the snapshot and the decision")
    accepted = None if dry_run else await carry_out(acceptance)
    if output is Format.JSON:
        print_json(_document(acceptance, accepted))
    else:
        print(_outcome(acceptance, accepted))


def _print_plan(acceptance: Acceptance) -> None:
    print(f"partition {acceptance.partition}: {acceptance.finding_id}")
    print(f"  {acceptance.problem}")
    for line in acceptance.plan:
        print(f"  - {line}")
    print(f"  by {acceptance.decision['by']}: {acceptance.decision['reason']}", flush=True)


def _outcome(acceptance: Acceptance, accepted: Begun | None) -> str:
    if accepted is None:
        return "dry run: nothing was written"
    return (
        f"accepted: increment {accepted.increment.batch} at offset {accepted.offset}, snapshot"
        f" {accepted.snapshot_id}. Now run {look_again(acceptance.partition)}"
    )


def _document(acceptance: Acceptance, accepted: Begun | None) -> dict[str, object]:
    return {
        "partition": acceptance.partition,
        "finding": acceptance.finding_id,
        "problem": acceptance.problem,
        "plan": list(acceptance.plan),
        "reason": acceptance.decision["reason"],
        "by": acceptance.decision["by"],
        "dry_run": accepted is None,
        "batch": accepted.increment.batch if accepted else None,
        "offset": accepted.offset if accepted else None,
        "snapshot_id": accepted.snapshot_id if accepted else None,
    }
