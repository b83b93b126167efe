"""Remembers what this process has seen of the app in the last hour: a row each ten seconds, of the app and of each
partition.

The rows are taken from the statuses that the processes tell each other anyway. So they also have what a process did
that is dead by now. Pure, but for `run`.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isnan, nan
from typing import Annotated, Any, NamedTuple

import msgspec

from snapreplay.api.fleet_views import Covered, Held, Says, Scope, fleet, held
from snapreplay.api.peers import Peers
from snapreplay.service.clock import boot_seconds, time_of, wall_ms
from snapreplay.service.control.metrics import lag_records, predicted_seconds
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.control.status import NO_COMMITS, CommitTimes
from snapreplay.service.control.vocabulary import Count, Seconds, Time, said
from snapreplay.service.core.phase import Phase

log = logging.getLogger("snapreplay.http")

EVERY_SECONDS = 10
ROWS = 360


class Row(NamedTuple):
    """A look at the app or a partition: ten seconds, by their end. What is None is not known."""

    partitions: int
    """Of which anything was known."""
    live: int
    """Of those the ones that were LIVE all the time."""
    records_per_second: float | None
    commit_seconds: float | None
    longest_commit_seconds: float | None
    state_bytes: float | None
    restore_seconds: float | None
    lag: float | None


_COUNTS = 2
"""So many columns come first that are counts."""


class Ring:
    """The newest rows by slot: the number of their ten seconds since 1970. 14 KB, however long it is filled."""

    def __init__(self) -> None:
        self._slots = array("q", [-1]) * ROWS
        self._counts = [array("I", [0]) * ROWS for _ in Row._fields[:_COUNTS]]
        self._values = [array("f", [nan]) * ROWS for _ in Row._fields[_COUNTS:]]

    def put(self, slot: int, row: Row) -> None:
        """Keep a row, in place of the one of an hour before."""
        place = slot % ROWS
        self._slots[place] = slot
        for counts, number in zip(self._counts, (row.partitions, row.live), strict=True):
            counts[place] = number
        for values, value in zip(self._values, row[_COUNTS:], strict=True):
            values[place] = nan if value is None else value

    def rows(self, newest: int) -> dict[int, Row]:
        """Return the rows of the hour up to this slot, in order. A clock that was set back hides the ones after it."""
        found = sorted(each for each in self._slots if max(newest - ROWS, -1) < each <= newest)
        return {slot: self._row(slot % ROWS) for slot in found}

    def _row(self, place: int) -> Row:
        partitions, live = (counts[place] for counts in self._counts)
        return Row(partitions, live, *(_known(values[place]) for values in self._values))


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 5)


class SeenPartition(NamedTuple):
    """A partition at one moment, and what it has done since the last one. What is None is not known."""

    is_live: bool
    records_per_second: float | None
    commits: int
    commit_seconds: float
    longest_commit_seconds: float
    state_bytes: float | None
    restore_seconds: float | None
    lag: float | None


def row_of(seen: Sequence[SeenPartition]) -> Row:
    """Put together what was seen of several partitions at the same moment."""
    commits = sum(each.commits for each in seen)
    return Row(
        len(seen),
        sum(each.is_live for each in seen),
        _of(sum, (each.records_per_second for each in seen)),
        sum(each.commit_seconds for each in seen) / commits if commits else None,
        max(each.longest_commit_seconds for each in seen if each.commits) if commits else None,
        _of(sum, (each.state_bytes for each in seen)),
        _of(max, (each.restore_seconds for each in seen)),
        _of(sum, (each.lag for each in seen)),
    )


def _of(together: Callable[[Iterable[float]], float], values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return together(known) if known else None


class Totals(NamedTuple):
    """The totals of a partition since a process owns it, as it said at this moment."""

    process_id: str
    owner_epoch: int | None
    records: int
    commits: CommitTimes
    at: float

    def since(self, before: Totals | None) -> tuple[float | None, int, float]:
        """Return records per second, commits, and their seconds. A new owner, and a total that fell, began at 0."""
        if before is None or self.at <= before.at:
            return None, 0, 0.0
        is_same = before.process_id == self.process_id
        known = before.records if is_same else 0
        records = self.records - known if self.records >= known else self.records
        then, commits = before.commits, self.commits
        is_going_on = is_same and commits.total >= then.total and commits.seconds_total >= then.seconds_total
        then = then if is_going_on else NO_COMMITS
        return records / (self.at - before.at), commits.total - then.total, commits.seconds_total - then.seconds_total


def of_the_app(says: Sequence[Says]) -> list[Held]:
    """List the partitions that the app has by the own status, which comes first. A peer may name any others: each would
    cost a ring."""
    covered = Covered(says, Scope.APP)
    count = covered.own.facts.partition_count or 0
    return [each for each in held(covered) if 0 <= each.partition < count]


class LastHourRecorder:
    """Fill it by `look`, or `run` it."""

    def __init__(self) -> None:
        self._app = Ring()
        self._partitions: dict[int, Ring] = {}
        self._before: dict[int, Totals] = {}
        self._slot = -1

    async def run(self, newest: Callable[[], StatusDocument], peers: Peers) -> None:
        """Look every ten seconds, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS - wall_ms() / 1000 % EVERY_SECONDS)
            now = newest()
            try:
                says = fleet(now, peers.known(now), boot_seconds())
                self.look(of_the_app(says), wall_ms() / 1000)
            except Exception:  # HTTP must keep working if a peer's status is wrong
                log.exception("a row of the last hour is missing")

    def look(self, found: Iterable[Held], at: float) -> None:
        """Take a row of each partition of which its process speaks, and one of the app. `at`: Unix time."""
        slot = round(at / EVERY_SECONDS)
        if slot == self._slot:  # a timer may be early, and comes again then
            return
        self._slot = slot
        all_seen: list[SeenPartition] = []
        for each in found:
            seen = self._seen(each, at)
            if seen is not None:
                self._partitions.setdefault(each.partition, Ring()).put(slot, row_of([seen]))
                all_seen.append(seen)
        if all_seen:
            self._app.put(slot, row_of(all_seen))

    def rows(self, partition: int | None, newest: int) -> dict[int, Row]:
        ring = self._app if partition is None else self._partitions.get(partition)
        return ring.rows(newest) if ring else {}

    def _seen(self, found: Held, at: float) -> SeenPartition | None:
        process, status = found.holder, found.status
        # What a process says no more is not known: it may be anything by now.
        if process is None or status is None or not process.can_be_asked or (process.age_seconds or 0) > EVERY_SECONDS:
            return None
        now = Totals(process.process_id, status.owner_epoch, status.records_total, status.commits, at)
        before = self._before.get(found.partition)
        self._before[found.partition] = now
        is_live = status.phase is Phase.LIVE
        return SeenPartition(
            is_live and (before is None or before[:2] == now[:2]),
            *now.since(before),
            status.commits.longest_seconds,
            *((status.state_bytes, predicted_seconds(status), lag_records(status)) if is_live else (None, None, None)),
        )


PATH = "/api/v1/last-hour"


class LastHour(msgspec.Struct, frozen=True):
    """The last hour of the app or of a partition, a column for each measure. Each column has a value for each ten
    seconds from `first_at` on; null: not known."""

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


def view(rows: Mapping[int, Row], partition: int | None) -> LastHour:
    """Return the rows as columns; what lies between two of them is not known."""
    first, last = (min(rows), max(rows)) if rows else (0, -1)
    whole = [rows.get(slot, _NOTHING) for slot in range(first, last + 1)]
    columns: dict[str, Any] = {name: tuple(row[index] for row in whole) for index, name in enumerate(Row._fields)}
    began = time_of(first * EVERY_SECONDS * 1000) if rows else None
    return LastHour(partition=partition, every_seconds=EVERY_SECONDS, first_at=began, **columns)


def slot_of(now: datetime) -> int:
    return round(now.timestamp() / EVERY_SECONDS)
