"""Commands that list the processes, and what has happened: the operations, the snapshots, the changes of the group, and
the history of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snapreplay.api.cli.options import Output, Running
from snapreplay.api.cli.output import Format, note, print_json

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Json

Lines = Annotated[int, typer.Option("-n", "--lines", min=1, max=1000, help="How many to print, the newest ones.")]
SnapshotLines = Annotated[
    int, typer.Option("-n", "--lines", min=1, max=500, help="How many to print, the newest ones.")
]
SNAPSHOT_FIELDS = (
    *("started_at", "partition", "snapshot_id", "state", "reason", "batch", "entries", "size_bytes"),
    *("manifest_offset", "host", "error"),
)


PROCESS_FIELDS = (
    "instance_id",
    "process_id",
    "host",
    "url",
    "state",
    "since",
    "partitions",
    "drain",
    "version",
    "last_error",
)


def processes(*, client: Running, output: Output = Format.TABLE) -> None:
    """List the processes of the app: who they are, which can be asked, since when, and why not."""
    with client:
        found = client.processes()
    if output is Format.JSON:
        print_json({"items": found})
        return
    drains = ((each["drain"] or {}).get("state") for each in found)
    said = [
        {**each, "partitions": _listed(each["partitions"]), "drain": drain}
        for each, drain in zip(found, drains, strict=True)
    ]
    _print_fields(PROCESS_FIELDS, said)


def operations(*, count: Lines = 20, client: Running, output: Output = Format.TABLE) -> None:
    """List the last operations (50 at most) of all processes of the app, newest first, with the ids for `cancel`."""
    with client:
        found = client.operations()["items"][:count]
    if output is Format.JSON:
        print_json({"items": found})
        return
    columns = ("begun at", "operation", "kind", "state", "partitions", "host", "reason or result")
    _print_table(columns, map(_row, found))


def snapshots(*, count: SnapshotLines = 20, client: Running, output: Output = Format.TABLE) -> None:
    """List the last full snapshots of all processes of the app, newest first. A recovery uses only
    those in state `pointed`."""
    with client:
        found = client.snapshots(count)["items"]
    if output is Format.JSON:
        print_json({"items": found})
        return
    _print_fields(SNAPSHOT_FIELDS, found, right="batch entries")


def group_changes(*, count: Lines = 20, client: Running, output: Output = Format.TABLE) -> None:
    """List who joined the group of the app, left it or was expelled, as each process has seen it, newest first."""
    with client:
        items = client.group_changes()["items"]
    found = [{**each, "changes": each["changes"][:count]} for each in items]
    if output is Format.JSON:
        print_json({"items": found})
        return
    columns = ("heard at", "by", "generation", "members", "its partitions", "change")
    rows = (
        (each["at"], who["host"], each["generation"], each["members"], _listed(each["partitions"]), _change(each))
        for who in found
        for each in who["changes"]
    )
    _print_table(columns, rows, right="generation members")


def history(
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION", help="State partition.")],
    *,
    client: Running,
    output: Output = Format.TABLE,
) -> None:
    """List who has owned a partition, which snapshots its increments pointed to, and what was decided about its state,
    from its log, newest first."""
    with client:
        found = client.partition_history(partition)
    if output is Format.JSON:
        print_json(found)
        return
    owners = ("claimed_at", "instance_id", "host", "owner_epoch", "last_batch", "last_commit_at")
    snapshots = ("snapshot_id", "batch", "batch_at", "manifest_offset", "is_kept")
    decisions = ("at", "batch", "finding", "problem", "decided", "by", "reason")
    _print_fields(owners, found["ownerships"])
    _print_fields(snapshots, found["snapshots"])
    if decided := found.get("decisions"):  # an older service does not say it
        _print_fields(decisions, decided)
    if not found["is_whole"]:
        note("the log has more: this is what could be read in 5 s, at most 100 owners")


def _print_fields(names: Sequence[str], items: Iterable[Json], right: str = "") -> None:
    """Print these members of each item."""
    shown = [name.replace("_", " ") for name in names]
    _print_table(shown, ([each[name] for name in names] for each in items), right)


def _print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], right: str = "") -> None:
    from snapreplay.api.cli.output import console, table

    console().print(table(columns, rows, right=right), soft_wrap=True)


def _row(operation: Json) -> list[object]:
    numbers = _listed(part["partition"] for part in operation["parts"])
    names = ("created_at", "id", "kind", "state")
    return [*(operation[name] for name in names), numbers, operation["host"], _said(operation)]


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _said(operation: Json) -> str:
    """Return the reason, and what has become of the parts."""
    details = dict.fromkeys(part["detail"] for part in operation["parts"] if part["detail"])
    return "; ".join(filter(None, [operation["reason"], *details]))


def _change(change: Json) -> str:
    """Return who has come or gone, and how."""
    told = [
        f"{_listed(each['instance_id'] for each in change[kind])} {kind}"
        for kind in ("joined", "left", "expelled", "gone", "absent")
        if change[kind]
    ]
    return "; ".join([*told, *(["this process came back"] if change["is_anew"] else [])]) or "-"
