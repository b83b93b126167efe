"""Commands that read the state of a running service: get, scan."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import escaped
from snapreplay.api.cli.output import Format, note, print_json
from snapreplay.counted import counted
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.api.cli.client import Client, Json

PAGE_ENTRIES = 500


def get(
    store: options.StoreName,
    key: options.Key,
    *,
    partition: options.AnyPartition = None,
    stale: options.Stale = False,
    min_batch: options.MinBatch = 0,
    history: options.KeyHistory = False,
    count: options.ChangeLines = 20,
    client: options.Running,
    output: options.Output = Format.TABLE,
) -> None:
    """Look a key up in the state of a running service, as of the last committed batch.

    Exit code 2: no partition has the key."""
    if history:
        if stale or min_batch:
            raise UsageError("--history reads the log: it takes neither --stale nor --min-batch")
        with client:
            _print_histories(client, store, key, partition, count, output)
        return
    with client:
        found = client.state_key(store, key, partition=partition, stale=stale, min_batch=min_batch)
    if output is Format.JSON:
        print_json(found)
    else:
        _print_values(found)
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
        _print_changes(found)
    for each in found:
        where, oldest = f"partition {each['partition']}", each["from_batch"]
        if not each["is_whole"]:
            note(f"{where}: {'nothing was read' if oldest is None else f'read back to batch {oldest}'}, not all of it")
        if each["batches_without_changes"]:
            note(f"{where}: {counted(each['batches_without_changes'], 'batch')} without recorded changes")


def _print_changes(found: list[Json]) -> None:
    from snapreplay.api.cli.output import console, table

    rows = [
        (each["partition"], change["batch"], change["written_at"], _value_after(change), _read(change))
        for each in found
        for change in each["items"]
    ]
    columns = ("partition", "batch", "written at", "value", "its batch read")
    console().print(table(columns, rows, right="partition batch"), soft_wrap=True)


def _value_after(change: Json) -> str:
    return "(deleted)" if change["deleted"] else _compact(change["value"])


def _read(change: Json) -> str:
    return ", ".join(f"{each['topic']} {each['start_offset']}…{each['end_offset'] - 1}" for each in change["ranges"])


def _print_values(found: Json) -> None:
    from snapreplay.api.cli.output import console, table

    rows = [
        (each["partition"], each["batch"], each["answered_by"], f"{each['age_seconds']:.1f}", _compact(each["value"]))
        for each in found["items"]
    ]
    console().print(
        table(("partition", "batch", "answered by", "age s", "value"), rows, right="partition batch"), soft_wrap=True
    )


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
