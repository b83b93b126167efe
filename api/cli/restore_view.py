"""A restore status as text: table, bars, lines. Takes the JSON of `GET /restore-status`."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.output import console, table
from snapreplay.service.core.phase import RECOVERING, Phase

Json = dict[str, Any]

_ON_THE_WAY = {phase.value for phase in (Phase.ASSIGNED, *RECOVERING)}
_COLUMNS = (
    "partition",
    "phase",
    "percent",
    "progress",
    "rate",
    "eta",
    "mode",
    "snapshot",
    "attempts",
    "seconds",
    "proof",
)


def print_status(status: Json) -> None:
    """Print one row per partition, then what is wrong with each, then the summary."""
    out = console()
    rows = [_row(each) for each in status["partitions"]]
    if rows:
        out.print(
            table(_COLUMNS, rows, right="partition percent progress rate eta attempts seconds")
        )
    for each in status["partitions"]:
        for line in troubles(each):
            out.print(Text(line), soft_wrap=True)
    out.print(Text(f"{status['app_id']}: {summary(status)}"), soft_wrap=True)


def summary(status: Json) -> str:
    """Write one line, such as "3 live, 1 loading; 87.5 %"."""
    phases = status["summary"]["partitions_by_phase"]
    if status.get("waiting_for", ""):
        return f"waiting: {status.get('waiting_for')}"
    if not phases:
        return "no partition is assigned to this process"
    listed = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    if _ON_THE_WAY.isdisjoint(phases):
        return listed
    return f"{listed}; {status['summary']['percent']:.1f} %"


def exit_code(status: Json) -> ExitCode:
    """Tell a script whether all are live, a person must act, or it should ask again."""
    if "failed" in status["summary"]["partitions_by_phase"]:
        return ExitCode.FINDINGS
    return ExitCode.OK if status["summary"]["all_live"] else ExitCode.NOT_YET


def _row(partition: Json) -> list[object]:
    if partition["finished_at"] and partition["phase"] != "live":  # of a restore that is history
        return [partition["partition"], partition["phase"], *[None] * (len(_COLUMNS) - 2)]
    progress = partition["progress"] or {}
    return [
        partition["partition"],
        partition["phase"],
        percent(partition),
        amount(partition),
        _rate(progress),
        _seconds(progress.get("eta_seconds")),
        f"memory: {partition['warm']}" if partition["warm"] else partition["mode"],
        _snapshot(partition),
        partition["attempts"],
        _seconds(sum(partition["seconds_per_phase"].values()) or None),
        _proof(partition["proof"]),
    ]


def percent(partition: Json) -> str | None:
    """Write the percentage, such as "12.5 %"; None if the partition is not on the way to live."""
    return None if partition["percent"] is None else f"{partition['percent']:.1f} %"


def amount(partition: Json) -> str | None:
    """Write the amount, such as "1,024 / 4,096 bytes"; None if there is nothing to count."""
    progress = partition["progress"]
    if progress is None:
        return None
    return f"{progress['current']:,} / {progress['target']:,} {progress['unit']}"


def _rate(progress: Json) -> str | None:
    rate = progress.get("rate_per_second")
    return None if rate is None else f"{rate:,.0f}/s"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.2f} s"


def _snapshot(partition: Json) -> str | None:
    used = partition["snapshot"]
    return None if used is None else f"{used['snapshot_id'][:8]} (batch {used['batch']:,})"


def _proof(proof: Json | None) -> str | None:
    if proof is None:
        return None
    return "equal" if proof["equal"] else f"{proof['computed']} is not {proof['recorded']}"


def troubles(partition: Json) -> list[str]:
    """Tell what a person must know of this partition; empty if all is well."""
    lines, name = [], f"partition {partition['partition']}"
    if reason := partition["fallback_reason"]:
        which = partition["fallback_from"]
        what = f"snapshot {which}" if which else "the preferred mode"
        lines.append(f"{name}: {what} was not usable: {reason}")
    if error := partition["error"]:
        record = f" (record {error['record_id']})" if error["record_id"] else ""
        lines.append(f"{name}: {error['kind']}: {error['message']}{record}")
        lines += [hint] if (hint := hint_line(partition)) else []
    if waiting_for := partition["waiting_for"]:
        lines.append(f"{name}: {waiting_for}")
    if doubt := partition["ownership_doubt"]:
        lines.append(f"{name}: {doubt}")
    return lines


def hint_line(partition: Json) -> str | None:
    """Tell what a person can do about its error, if there is one."""
    hint = (partition["error"] or {}).get("hint")
    return f"partition {partition['partition']}: hint: {hint}" if hint else None


def line(partition: Json) -> str:
    """Write one partition in one line, for logs and pipes."""
    parts = [f"partition {partition['partition']} {partition['phase']}"]
    if partition["phase"] in ("loading", "advancing"):
        parts += [amount(partition) or "", f"{partition['percent']:.0f} %"]
        parts += [_rate(partition["progress"] or {}) or "", partition["waiting_for"]]
    if partition["attempts"] > 1:
        parts.append(f"attempt {partition['attempts']}")
    if partition["error"]:
        parts.append(f"{partition['error']['kind']}: {partition['error']['message']}")
    return " ".join(part for part in parts if part)
