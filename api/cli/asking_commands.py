"""Commands that show what a running service knows: where each partition is, what a restore would take, how far the
inputs are processed, entries of the state, the processes of the app, and what has happened."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import escaped
from snapreplay.api.cli.output import ExitCode, Format, console, moment, note, print_json, table
from snapreplay.counted import counted, some
from snapreplay.errors import UsageError
from snapreplay.service.clock import wall_time
from snapreplay.service.core.phase import ON_THE_WAY

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

ANSWERING = ("self", "reachable")
"""The states of a process that can be asked."""


def last_heard(row: Json) -> str:
    """Say of a row about a partition that it may be wrong by now, such as "(last known: its process 3f0c is dead)";
    empty if its process answers, or no process has the partition."""
    if row["process_state"] in (None, *ANSWERING):
        return ""
    return f"(last known: its process {row['process_id']} is {row['process_state']})"


def restore_status(*, client: options.Running, output: options.Output = Format.TABLE) -> ExitCode:
    """Show the recovery progress of each partition of a running app. Ask any process.

    Exit code 0: all are live; 1: a partition failed; 5: not all are live yet, or none is assigned."""
    with client:
        status = client.restore_status()
    return _shown(status, output, print_status, restore_code)


def _shown(
    found: Json, output: Format, show: Callable[[Json], None], exit_code: Callable[[Json], ExitCode]
) -> ExitCode:
    if output is Format.JSON:
        print_json(found)
    else:
        show(found)
    return exit_code(found)


_RESTORE_COLUMNS = [
    *("partition", "phase", "percent", "progress", "rate", "eta"),
    *("mode", "snapshot", "attempts", "seconds", "proof"),
]


def print_status(status: Json) -> None:
    """Print one row per partition, then what is wrong with each, the standbys, which of them are missing, the processes
    that cannot be asked, and the summary."""
    names = _names(status)
    rows = [_restore_row(each) for each in status["partitions"]]
    columns = _RESTORE_COLUMNS
    if names:
        columns = [columns[0], "process", *columns[1:]]
        rows = [[row[0], _process(each, names), *row[1:]] for each, row in zip(status["partitions"], rows, strict=True)]
    if rows:
        right, whole = "partition percent progress rate eta attempts seconds", "partition process phase percent proof"
        console().print(table(columns, rows, right, whole))
    lines = [line for each in status["partitions"] for line in troubles(each)]
    lines += [standby(each, names) for each in status.get("standbys", ())] + copies(status)
    lines += [away(each) for each in status.get("processes", ()) if each["state"] not in ANSWERING]
    lines += [f"trouble: {trouble}"] if (trouble := status.get("trouble")) else []
    lines += status["topics_not_read"]
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
    """Write one line on a process that cannot be asked, such as "process ledger-1 on host-b: dead since
    2026-11-21T09:30:12Z: silent for 3.0 s"."""
    since = moment(process["since"])
    return f"process {_name(process)} on {process['host']}: {process['state']} since {since}: {process['last_error']}"


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


def restore_code(status: Json) -> ExitCode:
    """Tell a script whether all are live, a person must act, or it should ask again."""
    if "failed" in status["summary"]["partitions_by_phase"]:
        return ExitCode.FINDINGS
    return ExitCode.OK if status["summary"]["all_live"] else ExitCode.NOT_YET


def _restore_row(partition: Json) -> list[object]:
    if partition["finished_at"] and partition["phase"] != "live":  # of a restore that is history
        return [partition["partition"], partition["phase"], *[None] * (len(_RESTORE_COLUMNS) - 2)]
    progress, used = partition["progress"] or {}, partition["snapshot"]
    rate = progress.get("rate_per_second")
    return [
        partition["partition"],
        (partition["phase"] or "unknown") + (", paused" if partition.get("paused_since") else ""),
        percent(partition),
        amount(partition),
        None if rate is None else f"{rate:,.0f}/s",
        _in_seconds(progress.get("eta_seconds")),
        f"memory: {partition['warm']}" if partition["warm"] else partition["mode"],
        None if used is None else _start(used),
        partition["attempts"],
        _in_seconds(sum(partition["seconds_per_phase"].values()) or None),
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


def _in_seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.2f} s"


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
        lines += [f"{name}: hint: {error['hint']}"] if error["hint"] else []
    if waiting_for := partition["waiting_for"]:
        lines.append(f"{name}: {waiting_for}")
    if since := partition.get("paused_since"):
        why = partition["paused_reason"] or "no reason was given"
        lines.append(f"{name}: paused since {moment(since)}: {why}")
    if doubt := partition["ownership_doubt"]:
        lines.append(f"{name}: {doubt}")
    return lines


def plan(*, client: options.Running, output: options.Output = Format.TABLE) -> ExitCode:
    """Show what a recovery of each partition would do now, and how long it would take.

    Exit code 0: each could be restored; 1: one could not; 5: not all were looked at yet."""
    with client:
        plans = client.items("restore/plan")
    return _shown(plans, output, print_plans, plans_code)


_PLAN_COLUMNS = ("partition", "start", "bytes", "records", "mode", "seconds")


def print_plans(plans: Json) -> None:
    """Print one row per partition, then what is wrong, and where the rates are from."""
    console().print(
        table(_PLAN_COLUMNS, [_plan_row(each) for each in plans["items"]], right="partition bytes records seconds")
    )
    lines = [line for each in plans["items"] for line in _plan_troubles(each)]
    planned = [each["plan"] for each in plans["items"] if each["plan"] is not None]
    measured = sorted({name for plan in planned for name in plan["rates"]["measured"]})
    lines += _registries(planned)
    if planned:
        lines.append(f"rates measured by a restore: {', '.join(measured) or 'none'}; all others are fixed")
    for line in lines:
        print(line)


def plans_code(plans: Json) -> ExitCode:
    """Tell a script whether each could be restored, one could not, or it should ask again: one is not known (now)."""
    if any(each["recoverable"] is False for each in plans["items"]):
        return ExitCode.FINDINGS
    known = [each["plan"] is not None and not last_heard(each) for each in plans["items"]]
    return ExitCode.OK if known and all(known) else ExitCode.NOT_YET


def _plan_row(partition: Json) -> list[object]:
    plan = partition["plan"]
    if plan is None or plan["first"] is None:
        return [partition["partition"], None if plan is None else "none", *[None] * (len(_PLAN_COLUMNS) - 2)]
    first = plan["first"]
    return [
        partition["partition"],
        _start(first),
        f"{first['size_bytes']:,}",
        f"{first['records']:,}",
        plan["mode"],
        f"{first['predicted_seconds']:.2f}",
    ]


def _start(way: Json) -> str:
    name = "genesis" if way["snapshot_id"] is None else way["snapshot_id"][:8]
    return f"{name} (batch {way['batch']:,})"


def _plan_troubles(partition: Json) -> list[str]:
    name, lines = f"partition {partition['partition']}", list[str]()
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
        lines.append(f"{name} is {phase}: no plan yet; a live partition is examined once a minute")
    return lines


def _registries(planned: list[Json]) -> list[str]:
    """Say which schema registries a replay asks, and whether a replay is what is planned."""
    found = sorted({each for plan in planned for each in plan["replay_needs"]})
    if not found:
        return []
    asked = ", ".join(found)
    if any(plan["mode"] == "replay" for plan in planned):
        return [f"a replay waits until the schema registry answers: {asked}"]
    return [f"recorded changes need no schema registry; a replay would need {asked}"]


def lag(*, client: options.Running, output: options.Output = Format.TABLE) -> ExitCode:
    """Show the lag of each input: to its last stable offset and to its high watermark. Also show the transaction that
    holds an input back, and how long it has been open.

    Exit code 0: nothing is held back; 1: an input is; 5: a lag is not known yet."""
    with client:
        partitions = client.items("partitions")
    return _shown(partitions, output, print_lags, lags_code)


_LAG_COLUMNS = ("partition", "phase", "input", "position", "stable", "lag", "watermark", "lag to it")
_LAG_NUMBERS = ("position", "end_offset", "lag", "high_watermark", "lag_to_high_watermark")


def print_lags(partitions: Json) -> None:
    """Print one row per partition and input, then what may be wrong by now, and what holds back a topic."""
    rows = [row for each in partitions["items"] for row in _lag_rows(each)]
    shown = table(_LAG_COLUMNS, rows)
    for column in (0, *range(3, len(_LAG_COLUMNS))):
        shown.columns[column].justify = "right"
    console().print(shown)
    for each in partitions["items"]:
        if heard := last_heard(each):
            print(f"partition {each['partition']} {heard}")
            continue  # what held it back then may be over
        for blocked in each["blocked_by_open_transaction"]:
            print(f"partition {each['partition']}: {_held_back(blocked, wall_time())}")


def lags_code(partitions: Json) -> ExitCode:
    """Tell a script whether an input or the log is held back, or whether to ask again: a lag is not known (now)."""
    items = partitions["items"]
    if any(each["blocked_by_open_transaction"] and not last_heard(each) for each in items):
        return ExitCode.FINDINGS
    return ExitCode.OK if items and all(map(_is_lag_known, items)) else ExitCode.NOT_YET


def _is_lag_known(partition: Json) -> bool:
    lags = [each["lag"] for each in partition["inputs"]]
    return bool(lags) and None not in lags and not last_heard(partition)


def _lag_rows(partition: Json) -> list[list[object]]:
    phase = partition["phase"] or "unknown"
    start = [partition["partition"], f"was {phase}" if last_heard(partition) and partition["phase"] else phase]
    rows = [
        [*start, each["topic"], *(None if each[name] is None else f"{each[name]:,}" for name in _LAG_NUMBERS)]
        for each in partition["inputs"]
    ]
    return rows or [[*start, *[None] * (len(_LAG_COLUMNS) - len(start))]]


def _held_back(blocked: Json, now: datetime) -> str:
    what = (
        f"{blocked['topic']} is held back at offset {blocked['last_stable_offset']:,}:"
        f" {counted(blocked['offsets'], 'offset')} wait behind"
    )
    return f"{what} {_who(blocked['held_by'], now)}"


def _who(held_by: Json | None, now: datetime) -> str:
    if held_by is None:
        return "an open transaction"
    who = f"the open transaction of producer id {held_by['producer_id']}"
    if held_by["transactional_id"] is None:
        since = held_by["last_record_at"]
        last = f"; its last record is {_seconds(since, now)} s old" if since else ""
        return f"{who}, which no coordinator names (it hangs, or Describe on its transactional id is missing){last}"
    of = f"{who}, transactional id {held_by['transactional_id']!r}"
    if held_by["started_at"] is None:
        return of
    return f"{of}, open for {_seconds(held_by['started_at'], now)} s of at most {held_by['timeout_seconds']:,.0f} s"


def _seconds(since: str, now: datetime) -> str:
    return f"{max(0.0, (now - datetime.fromisoformat(since)).total_seconds()):,.0f}"


SNAPSHOT_FIELDS = (
    *("started_at", "partition", "snapshot_id", "state", "reason", "batch", "entries", "size_bytes"),
    *("manifest_offset", "host", "error"),
)
PROCESS_FIELDS = (
    *("instance_id", "process_id", "host", "url", "state", "since"),
    *("partitions", "drain", "version", "last_error"),
)


def processes(*, client: options.Running, output: options.Output = Format.TABLE) -> None:
    """List the processes of the app, whether each can be reached, since when, and why not."""
    with client:
        found = client.processes()
    said = [
        {**each, "partitions": _listed(each["partitions"]), "drain": (each["drain"] or {}).get("state")}
        for each in found
    ]
    _print_items(found, output, *_fields(PROCESS_FIELDS, said))


def operations(*, count: options.Lines = 20, client: options.Running, output: options.Output = Format.TABLE) -> None:
    """List the last operations (50 at most) of all processes of the app, newest first, with the ids for `cancel`."""
    with client:
        found = client.items("operations")["items"][:count]
    columns = ("begun at", "operation", "kind", "state", "partitions", "host", "reason or result")
    _print_items(found, output, columns, map(_row, found))


def snapshots(
    *, count: options.SnapshotLines = 20, client: options.Running, output: options.Output = Format.TABLE
) -> None:
    """List the last full snapshots of all processes of the app, newest first. A recovery uses only
    those in state `pointed`."""
    with client:
        found = client.items(f"snapshots?limit={count}")["items"]
    _print_items(found, output, *_fields(SNAPSHOT_FIELDS, found), right="batch entries")


def history(
    partition: options.PartitionNumber, *, client: options.Running, output: options.Output = Format.TABLE
) -> None:
    """List the owners, snapshots and decisions of a partition, from its log, newest first."""
    with client:
        found = client.partition_history(partition)
    if output is Format.JSON:
        print_json(found)
        return
    owners = ("claimed_at", "instance_id", "host", "owner_epoch", "last_batch", "last_commit_at")
    snapshots = ("snapshot_id", "batch", "batch_at", "manifest_offset", "is_kept")
    decisions = ("at", "batch", "finding", "problem", "decided", "by", "reason")
    _print_table(*_fields(owners, found["ownerships"]))
    _print_table(*_fields(snapshots, found["snapshots"]))
    if decided := found["decisions"]:
        _print_table(*_fields(decisions, decided))
    if not found["is_whole"]:
        note("the log has more: this is what could be read in 5 s, at most 100 owners")


Row = Iterable[object]
Rows = Iterable[Row]


def _fields(names: Sequence[str], items: Iterable[Json]) -> tuple[list[str], Rows]:
    """Return the columns for these members of each item, and the rows."""
    return [name.replace("_", " ") for name in names], ([_field(each, name) for name in names] for each in items)


def _field(item: Json, name: str) -> object:
    is_time = name.rsplit("_", maxsplit=1)[-1] in {"at", "since"}
    return moment(item[name]) if is_time and item[name] else item[name]


def _print_items(items: Sequence[Json], output: Format, columns: Iterable[str], rows: Rows, right: str = "") -> None:
    """Print a list as one JSON document, or as a table of these rows."""
    if output is Format.JSON:
        print_json({"items": items})
    else:
        _print_table(columns, rows, right)


def _print_table(columns: Iterable[str], rows: Rows, right: str = "") -> None:
    console().print(table(columns, rows, right=right), soft_wrap=True)


def _row(operation: Json) -> list[object]:
    numbers = _listed(part["partition"] for part in operation["parts"])
    names = ("created_at", "id", "kind", "state")
    return [*(_field(operation, name) for name in names), numbers, operation["host"], _said(operation)]


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _said(operation: Json) -> str:
    """Return the reason, and what has become of the parts."""
    details = dict.fromkeys(part["detail"] for part in operation["parts"] if part["detail"])
    return "; ".join(filter(None, [operation["reason"], *details]))


def health(*, ready: options.Ready = False, client: options.Probed) -> ExitCode:
    """Check the health of a running service, for a container.

    Exit code 0: healthy; 1: not healthy, or nothing answers."""
    with client:
        probe = client.probe("/readyz" if ready else "/healthz")
    failing = [check for check in probe.get("checks", ()) if not check["ok"]]
    for check in failing:
        note(f"{check['name']}: {check['detail'] or 'not ok'}")
    return ExitCode.OK if probe.get("status") == "ok" else ExitCode.FINDINGS


PAGE_ENTRIES = 500


def get(
    store: options.StoreName,
    key: options.Key,
    *,
    partition: options.AnyPartition = None,
    stale: options.Stale = False,
    history: options.KeyHistory = False,
    count: options.ChangeLines = 20,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> None:
    """Look a key up in the state of a running service, as of the last committed batch.

    Exit code 2: no partition has the key."""
    if history:
        if stale:
            raise UsageError("--history reads the log: it does not take --stale")
        with client:
            _print_histories(client, store, key, partition, count, output)
        return
    with client:
        found = client.state_key(store, key, partition=partition, stale=stale)
    if output is Format.JSON:
        print_json(found)
    else:
        columns = ("partition", "batch", "answered by", "age s", "value")
        _print_table(columns, map(_value_row, found["items"]), right="partition batch")
    for each in found["not_read"]:
        note(f"not read: partition {each['partition']}: {each['reason']}")


def _print_histories(client: Client, store: str, key: str, partition: int | None, count: int, output: Format) -> None:
    """Print the changes of a key, partition by partition, and beside them what is not known."""
    number = partition or 0
    found: list[Json] = []
    while partition is None or not found:
        found.append(client.key_history(store, key, number, count))
        if output is Format.JSON:
            print_json(found[-1])
        number += 1
        if number >= found[-1]["partition_count"]:
            break
    if output is Format.TABLE:
        rows = [_change_row(each["partition"], change) for each in found for change in each["items"]]
        _print_table(("partition", "batch", "written at", "value", "its batch read"), rows, right="partition batch")
    for each in found:
        where, oldest = f"partition {each['partition']}", each["from_batch"]
        if not each["is_whole"]:
            note(f"{where}: {'nothing was read' if oldest is None else f'read back to batch {oldest}'}, not all of it")
        if each["batches_without_changes"]:
            note(f"{where}: {counted(each['batches_without_changes'], 'batch')} without recorded changes")


def _change_row(partition: int, change: Json) -> Row:
    value = "(deleted)" if change["deleted"] else _compact(change["value"])
    read = (f"{each['topic']} {each['start_offset']}…{each['end_offset'] - 1}" for each in change["ranges"])
    return (partition, change["batch"], _field(change, "written_at"), value, ", ".join(read))


def _value_row(each: Json) -> Row:
    age = f"{each['age_seconds']:.1f}"
    return (each["partition"], each["batch"], each["answered_by"], age, _compact(each["value"]))


def scan(
    store: options.StoreName,
    *,
    partition: options.AnyPartition = None,
    prefix: options.Prefix = None,
    start: options.FromKey = None,
    end: options.ToKey = None,
    count: options.EntryLines = 100,
    stale: options.Stale = False,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> None:
    """Print entries of the state of a running service, partition by partition.

    Those of an ordered map come in the order of their keys. Each page of 500 is of one committed batch."""
    bounds = {"prefix": prefix, "from": start, "to": end, "stale": stale or None}
    try:
        with client:
            is_all = _print_entries(client, store, partition, bounds, count, output)
    except BrokenPipeError:  # `| head` has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if not is_all:
        note(f"there are more entries than {count}: `-n 0` prints all")


def _print_entries(client: Client, store: str, partition: int | None, bounds: Json, count: int, output: Format) -> bool:
    """Print at most so many entries. Returns whether these are all."""
    for printed, entry in enumerate(_entries(client, store, partition, bounds)):
        if count and printed == count:
            return False
        if output is Format.JSON:
            print_json(entry)
        else:
            print(f"{entry['partition']}  {_compact(entry['key'])} → {_compact(entry['value'])}")
    sys.stdout.flush()
    return True


def _entries(client: Client, store: str, partition: int | None, bounds: Json) -> Iterator[Json]:
    number, after = partition or 0, None
    while True:
        page = client.state_entries(store, number, {**bounds, "after": after, "limit": PAGE_ENTRIES})
        at = {name: page[name] for name in ("partition", "batch", "answered_by", "age_seconds")}
        yield from ({**at, **entry} for entry in page["items"])
        after = page["next_after"]
        if after is None:
            number += 1
            if partition is not None or number >= page["partition_count"]:
                return


def _compact(value: Any) -> str:
    return escaped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
