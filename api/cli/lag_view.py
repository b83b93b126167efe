"""The lags of the inputs as a table. Takes the JSON of `GET /api/v1/partitions`."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from snapreplay.api.cli.client import Json, last_heard
from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.output import console, table
from snapreplay.counted import counted
from snapreplay.service.clock import wall_time

_COLUMNS = ("partition", "phase", "input", "position", "stable", "lag", "watermark", "lag to it")
_NUMBERS = ("position", "end_offset", "lag", "high_watermark", "lag_to_high_watermark")


def print_lags(partitions: Json) -> None:
    """Print one row per partition and input, then what may be wrong by now, and what holds back a topic."""
    out = console()
    rows = [row for each in partitions["items"] for row in _rows(each)]
    shown = table(_COLUMNS, rows)
    for column in (0, *range(3, len(_COLUMNS))):
        shown.columns[column].justify = "right"
    out.print(shown)
    for each in partitions["items"]:
        if heard := last_heard(each):
            out.print(Text(f"partition {each['partition']} {heard}"), soft_wrap=True)
            continue  # what held it back then may be over
        for blocked in each["blocked_by_open_transaction"]:
            out.print(Text(f"partition {each['partition']}: {_held_back(blocked, wall_time())}"), soft_wrap=True)


def exit_code(partitions: Json) -> ExitCode:
    """Tell a script whether an input or the log is held back, or whether to ask again: a lag is not known (now)."""
    items = partitions["items"]
    if any(each["blocked_by_open_transaction"] and not last_heard(each) for each in items):
        return ExitCode.FINDINGS
    return ExitCode.OK if items and all(map(_is_known, items)) else ExitCode.NOT_YET


def _is_known(partition: Json) -> bool:
    lags = [each["lag"] for each in partition["inputs"]]
    return bool(lags) and None not in lags and not last_heard(partition)


def _rows(partition: Json) -> list[list[object]]:
    phase = partition["phase"] or "unknown"
    start = [partition["partition"], f"was {phase}" if last_heard(partition) and partition["phase"] else phase]
    rows = [
        [*start, each["topic"], *(None if each[name] is None else f"{each[name]:,}" for name in _NUMBERS)]
        for each in partition["inputs"]
    ]
    return rows or [[*start, *[None] * (len(_COLUMNS) - len(start))]]


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
