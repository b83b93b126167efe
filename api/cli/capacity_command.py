"""The command `plan-capacity` says what a deployment needs, before there is one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from snapreplay.api.cli.options import Output
from snapreplay.api.cli.output import Format, console, print_json, table


def plan_capacity(
    *,
    processes: Annotated[int, typer.Option("--processes", min=1, max=10_000, help="Processes of the app.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=1_000_000, help="Partitions of an input.")],
    records_per_second: Annotated[float, typer.Option("--records-per-second", min=0, help="Of the whole app.")] = 0.0,
    entries: Annotated[int, typer.Option("--entries", min=0, help="Entries of the state, of the whole app.")] = 0,
    replicas: Annotated[int, typer.Option("--replicas", min=0, max=10, help="`standby.replicas`.")] = 0,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=10_000, help="Brokers of the cluster.")] = 3,
    racks: Annotated[int, typer.Option("--racks", min=1, max=100, help="Racks; one may be lost.")] = 3,
    session_seconds: Annotated[
        float, typer.Option("--session-seconds", min=0, help="`group.session_timeout_ms`, in seconds.")
    ] = 10.0,
    entry_bytes: Annotated[float, typer.Option("--entry-bytes", min=1, help="Memory of an entry.")] = 160.0,
    output: Output = Format.TABLE,
) -> None:
    """Compute what a deployment needs, and which limit it meets first. Nothing is asked: no Kafka, no app."""
    from snapreplay.service.core.capacity import Deployment, first_limit, needs

    sizes = (processes, partitions, records_per_second, entries, replicas, brokers, racks)
    found = needs(Deployment(*sizes, session_seconds, entry_bytes))
    limit = first_limit(found)
    if output is Format.JSON:
        print_json({"needs": [asdict(each) for each in found], "first_limit": limit.what if limit else None})
        return
    rows = [[each.what, each.amount, f"{each.share:.0%}" if each.share else None] for each in found]
    out = console()
    out.print(table(("need", "amount", "of the limit"), rows))
    if limit is not None:
        says = f"first limit: {limit.what}, {limit.share:.0%}"
        out.print(f"{says}; set {limit.remedy}" if limit.share > 1 else says, soft_wrap=True)
