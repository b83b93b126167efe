"""The answer about the last hour: the rows of this process, and those of others where they saw more of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from snapreplay.api.fleet_views import Covered, Process, Scope
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.last_hour import EVERY_SECONDS, ROWS, Row
from snapreplay.api.problems import ProblemError
from snapreplay.service.clock import time_of
from snapreplay.service.control.vocabulary import Count, Seconds, Time, one_of, said

PATH = "/api/v1/last-hour"


class LastHour(msgspec.Struct, frozen=True):
    """The last hour of the app or of a partition, a column for each measure. Each column has a value for each ten
    seconds from `first_at` on; null: not known."""

    scope: Annotated[str, one_of(*Scope), said("`app`: processes that have seen more than this one were asked, too.")]
    partition: Annotated[Count | None, said("Null: the whole app.")]
    every_seconds: Count
    first_at: Annotated[Time | None, said("The end of the first ten seconds; null: nothing is known yet.")]
    partitions: Annotated[tuple[Count, ...], said("Of how many partitions anything was known.")]
    live: Annotated[tuple[Count, ...], said("How many of those were live all the time, by the same owner.")]
    records_per_second: Annotated[tuple[float | None, ...], said("Processed; replay is not counted.")]
    commit_seconds: Annotated[tuple[Seconds | None, ...], said("Mean of the commits; null: there was none.")]
    longest_commit_seconds: tuple[Seconds | None, ...]
    state_bytes: Annotated[tuple[float | None, ...], said("Of the live partitions, as the next two.")]
    restore_seconds: Annotated[tuple[Seconds | None, ...], said("Predicted for now, of the longest restore.")]
    lag: Annotated[tuple[float | None, ...], said("Records up to the last stable offsets.")]


_NOTHING = Row(0, 0, *(None,) * 6)


def view(rows: Mapping[int, Row], partition: int | None, scope: Scope) -> LastHour:
    """Return the rows as columns; what lies between two of them is not known."""
    first, last = (min(rows), max(rows)) if rows else (0, -1)
    whole = [rows.get(slot, _NOTHING) for slot in range(first, last + 1)]
    columns: dict[str, Any] = {name: tuple(row[index] for row in whole) for index, name in enumerate(Row._fields)}
    began = time_of(first * EVERY_SECONDS * 1000) if rows else None
    return LastHour(scope=scope, partition=partition, every_seconds=EVERY_SECONDS, first_at=began, **columns)


def rows_of(told: LastHour) -> dict[int, Row]:
    """Return the rows of an answer, by slot."""
    if told.first_at is None or told.every_seconds != EVERY_SECONDS:
        return {}
    first = round(told.first_at.timestamp() / EVERY_SECONDS)
    columns = zip(*(getattr(told, name) for name in Row._fields), strict=True)
    return {first + index: Row(*row) for index, row in enumerate(columns) if row[0]}


def joined(told: Iterable[Mapping[int, Row]], slots: range) -> dict[int, Row]:
    """Return each row of these slots once: as the one says that has seen most of the app then, of equals the first
    one."""
    found: dict[int, Row] = {}
    for each in told:
        for slot, row in each.items():
            if slot in slots and (slot not in found or row.partitions > found[slot].partitions):
                found[slot] = row
    return found


def slots(now: datetime, since: datetime | None) -> range:
    """Return the slots of the last hour, or those of it that end after `since`."""
    newest = round(now.timestamp() / EVERY_SECONDS)
    first = newest - ROWS + 1
    return range(first if since is None else max(first, int(since.timestamp() // EVERY_SECONDS) + 1), newest + 1)


async def asked(forwarder: Forwarder, covered: Covered, partition: int | None, slots: range) -> list[dict[int, Row]]:
    """Ask the other processes for these slots. One that does not answer, or is of a version without the path, adds
    nothing."""
    since = time_of((slots.start - 1) * EVERY_SECONDS * 1000).strftime("%Y-%m-%dT%H:%M:%SZ")
    target = f"{PATH}?scope=local&since={since}" + ("" if partition is None else f"&partition={partition}")
    async with asyncio.TaskGroup() as group:
        others = [each.process for each in covered.says[1:] if each.process.can_be_asked]
        tasks = [group.create_task(_one(forwarder, each, target)) for each in others]
    return [each.result() for each in tasks]


async def _one(forwarder: Forwarder, process: Process, target: str) -> dict[int, Row]:
    try:
        status, document = await forwarder.read(process, target)
        return rows_of(msgspec.json.decode(document, type=LastHour)) if status == 200 else {}
    except (ProblemError, msgspec.MsgspecError, ValueError):
        return {}
