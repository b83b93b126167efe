"""How a recovery from damaged topics ended, in the words of the table in docs/results.md."""

from __future__ import annotations

from typing import Any

from snapreplay.service.control.status import RestoreStatus


def ends(restore: RestoreStatus, snapshots: list[str], error: str | None) -> str:
    """`snapshots`: the ids that the last increment points to, newest first; `error`: what made it FAILED."""
    if error is not None:
        return f"FAILED, `{error}`"
    used = restore.snapshot.snapshot_id if restore.snapshot else None
    place = snapshots.index(used) if used else len(snapshots)
    where = ("newest snapshot", "snapshot before", "genesis")[place]
    return f"LIVE from the {where}, by {restore.mode}"


def row(record: str, damage: str, ended: str, says: str) -> str:
    """A line of the table. `restore-status --watch` ends with 0 where all is LIVE, else with 1."""
    code = 0 if ended.startswith("LIVE") else 1
    proof = "equal" if code == 0 else "–"
    return f"| {record} | {damage} | {ended} | {proof} | {code} | {says} |"


def table(document: str) -> list[str]:
    """The rows of the damage table in the document."""
    lines = iter(document.splitlines())
    for line in lines:
        if line.startswith("| record | damage |"):
            next(lines)
            break
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append(line)
    return rows


def told(restore: RestoreStatus, error: Any) -> str:
    """All that the status says about the damage."""
    return f"{restore.fallback_reason or ''} {error.message if error else ''}"
