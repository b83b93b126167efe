"""A restore status as text. Takes the JSON of `GET /restore-status`."""

from __future__ import annotations

from snapreplay.api.cli.asking_commands import ANSWERING
from snapreplay.api.cli.client import Json
from snapreplay.api.cli.output import ExitCode, console, table
from snapreplay.counted import counted, some
from snapreplay.service.core.phase import ON_THE_WAY

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
    """Print one row per partition, then what is wrong with each, the standbys, which of them are missing, the processes
    that cannot be asked, and the summary."""
    names = _names(status)
    rows = [_row(each) for each in status["partitions"]]
    columns: tuple[str, ...] = _COLUMNS
    if names:
        columns = (_COLUMNS[0], "process", *_COLUMNS[1:])
        rows = [[row[0], _process(each, names), *row[1:]] for each, row in zip(status["partitions"], rows, strict=True)]
    if rows:
        right, whole = "partition percent progress rate eta attempts seconds", "partition process phase percent proof"
        console().print(table(columns, rows, right, whole))
    lines = [line for each in status["partitions"] for line in troubles(each)]
    lines += [standby(each, names) for each in status.get("standbys", ())] + copies(status)
    lines += [away(each) for each in status.get("processes", ()) if each["state"] not in ANSWERING]
    lines += [f"trouble: {trouble}"] if (trouble := status.get("trouble")) else []
    lines += status.get("topics_not_read", ())  # an older service does not say it
    for line in (*lines, f"{status['app_id']}: {summary(status)}"):
        print(line)


def _names(status: Json) -> dict[str, str]:
    """Return the names of the processes by their ids; empty if the status is about one alone."""
    processes = status.get("processes", ())
    return {each["process_id"]: _name(each) for each in processes} if status.get("scope") == "app" else {}


def _name(process: Json) -> str:
    return str(process["instance_id"] or process["process_id"])


def _process(row: Json, names: dict[str, str]) -> str | None:
    if row["process_id"] is None:
        return None
    name = names.get(row["process_id"], row["process_id"])
    return name if row["process_state"] in ANSWERING else f"{name} ({row['process_state']})"


def away(process: Json) -> str:
    """Write one line on a process that cannot be asked, such as "process ledger-1 on host-b: dead since 2026-11-21
    09:30:12 UTC: silent for 3.0 s"."""
    since = process["since"][:19].replace("T", " ")
    return (
        f"process {_name(process)} on {process['host']}: {process['state']} since {since} UTC: {process['last_error']}"
    )


def standby(copy: Json, names: dict[str, str]) -> str:
    """Write one line, such as "standby of partition 3: warm, batch 1,204, 0 offsets behind, 1,204 digests equal"."""
    where = f" in {_process(copy, names)}" if names else ""
    line = f"standby of partition {copy['partition']}{where}: {copy['state']}"
    if copy["batch"] is not None:
        line += f", batch {copy['batch']:,}, {counted(copy['lag_offsets'], 'offset')} behind"
    if compared := copy.get("digests_compared"):
        line += f", {counted(compared, 'digest')} equal"
    return f"{line}; {copy['error']['message']}" if copy["error"] else line


def copies(status: Json) -> list[str]:
    """Tell how many of the wanted copies are warm, and why some are missing or on the rack of their owner."""
    said: dict[str, list[str]] = {}
    for each in status.get("processes", ()):
        found = each.get("copies")
        if not found or not each["partitions"] or each["state"] not in ANSWERING:
            continue
        if why := found["why_missing"]:
            text = f"{found['given']} of {counted(found['wanted'], 'copy')} of each: {why}"
            said.setdefault(text, []).append(_name(each))
        if why := found["why_on_owners_rack"]:
            text = f"the copies of {found['on_owners_rack']} are on the rack of their owner: {why}"
            said.setdefault(text, []).append(_name(each))
    lines = [f"partitions of {some(names)}: {text}" for text, names in said.items()]
    warm, wanted = (status["summary"].get(f"copies_{each}") for each in ("warm", "wanted"))
    return [*([f"copies: {warm:,} of {wanted:,} warm"] if wanted and warm is not None else []), *lines]


def summary(status: Json) -> str:
    """Write one line, such as "3 live, 1 loading; 87.5 %"."""
    phases = status["summary"]["partitions_by_phase"]
    if status.get("waiting_for", ""):
        return f"waiting: {status.get('waiting_for')}"
    if not phases:
        return "no partition is assigned to this process"
    listed = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    if phases.keys().isdisjoint(ON_THE_WAY):
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
        (partition["phase"] or "unknown") + (", paused" if partition.get("paused_since") else ""),
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
        lines += filter(None, [hint_line(partition)])
    if waiting_for := partition["waiting_for"]:
        lines.append(f"{name}: {waiting_for}")
    if since := partition.get("paused_since"):
        why = partition["paused_reason"] or "no reason was given"
        lines.append(f"{name}: paused since {since[:19].replace('T', ' ')} UTC: {why}")
    if doubt := partition["ownership_doubt"]:
        lines.append(f"{name}: {doubt}")
    return lines


def hint_line(partition: Json) -> str | None:
    """Tell what a person can do about its error, if there is one."""
    hint = (partition["error"] or {}).get("hint")
    return f"partition {partition['partition']}: hint: {hint}" if hint else None
