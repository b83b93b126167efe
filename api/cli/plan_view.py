"""The restore plans of partitions as a table. Takes the JSON of `GET /api/v1/restore/plan`."""

from __future__ import annotations

from rich.text import Text

from snapreplay.api.cli.client import Json, last_heard
from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.output import console, table

_COLUMNS = ("partition", "start", "bytes", "records", "mode", "seconds", "fallbacks", "headroom")


def print_plans(plans: Json) -> None:
    """Print one row per partition, then what is wrong, and where the rates are from."""
    out = console()
    out.print(table(_COLUMNS, [_row(each) for each in plans["items"]], right="partition bytes records seconds"))
    lines = [line for each in plans["items"] for line in _troubles(each)]
    planned = [each["plan"] for each in plans["items"] if each["plan"] is not None]
    measured = sorted({name for plan in planned for name in plan["rates"]["measured"]})
    if planned:
        lines.append(f"rates measured by a restore: {', '.join(measured) or 'none'}; all others are constants")
    for line in lines:
        out.print(Text(line), soft_wrap=True)


def exit_code(plans: Json) -> ExitCode:
    """Tell a script whether each could be restored, one could not, or it should ask again: one is not known (now)."""
    if any(each["recoverable"] is False for each in plans["items"]):
        return ExitCode.FINDINGS
    known = [each["plan"] is not None and not last_heard(each) for each in plans["items"]]
    return ExitCode.OK if known and all(known) else ExitCode.NOT_YET


def _row(partition: Json) -> list[object]:
    plan = partition["plan"]
    if plan is None or plan["first"] is None:
        return [partition["partition"], None if plan is None else "none", *[None] * (len(_COLUMNS) - 2)]
    first = plan["first"]
    return [
        partition["partition"],
        _start(first),
        f"{first['size_bytes']:,}",
        f"{first['records']:,}",
        plan["mode"],
        f"{first['predicted_seconds']:.2f}",
        ", ".join(f"{_start(each)}: {each['predicted_seconds']:.2f} s" for each in plan["fallbacks"]) or None,
        ", ".join(map(_headroom, plan["inputs"])) or None,
    ]


def _start(way: Json) -> str:
    name = "genesis" if way["snapshot_id"] is None else way["snapshot_id"][:8]
    return f"{name} (batch {way['batch']:,})"


def _headroom(left: Json) -> str:
    known = [each for each in (left["headroom_seconds"], left["size_headroom_seconds"]) if each is not None]
    time_left = f", {min(known):,.0f} s" if known else ""
    unknown = f" (by size: {left['size_unknown']})" if left["size_unknown"] else ""
    return f"{left['topic']}: {left['headroom_offsets']:,} offsets{time_left}{unknown}"


def _troubles(partition: Json) -> list[str]:
    name, plan = f"partition {partition['partition']}", partition["plan"]
    unusable = plan["unusable"] if plan is not None else {}
    lines = [f"{name}: snapshot {each} cannot be used: {why}" for each, why in unusable.items()]
    objective, drill = partition["objective"], partition["drill"]
    if drill is not None and drill["state"] == "failed":
        lines.append(f"{name}: the last drill failed: {drill['detail']}")
    if heard := last_heard(partition):
        lines.append(f"{name} {heard}")
    if objective is not None and not objective["is_met"]:
        lines.append(f"{name} does not meet restore.objective_seconds: {objective['reason']}")
    if partition["recoverable"] is False:
        lines.append(f"{name} is not recoverable: {partition['unrecoverable_reason']}")
    elif plan is None:
        phase = partition["phase"] or "unknown"
        lines.append(f"{name} is {phase}: no plan yet; a live partition is looked at once a minute")
    return lines
