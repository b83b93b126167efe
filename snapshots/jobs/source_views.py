"""The views of a reader of `format("snapreplay")`: each view's columns, and the rows of one partition."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from snapreplay.snapshots.format.records import ChangesRecord, Claim, Increment
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.entries import is_there
from snapreplay.snapshots.proof.records import Logs, Moment, judge
from snapreplay.snapshots.proof.state import At, StateUnreachable, last_batch, state_at
from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import is_marked, touched_at

ROWS_MAX = 10_000
"""Of an Arrow batch, about."""

_INT, _LONG, _TEXT = pa.int32(), pa.int64(), pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_POSITIONS = pa.map_(_TEXT, _LONG)

Block = dict[str, Sequence[Any] | pa.Array]
"""Column → its values, or an array of the column's type."""
Blocks = Iterator[Block]


class SourceView(NamedTuple):
    """Columns but for `partition`, which is the first of each; `blocks` of one partition, without it."""

    columns: dict[str, pa.DataType]
    blocks: Callable[[Moment, Logs, At], Blocks]

    def schema(self, key: pa.DataType, value: pa.DataType) -> pa.Schema:
        """Return the schema; `key`, `value`: the types of what is stored."""
        stored = {"key": key, "value": value}
        own = {name: stored.get(name, kind) for name, kind in self.columns.items()}
        return pa.schema({"partition": _INT, **own})


def _state(moment: Moment, logs: Logs, at: At) -> Blocks:
    state = state_at(moment, logs, at)
    if state is None:
        return
    for store, entries in state.entries.stores.items():
        keys, values = iter(entries), iter(entries.values())
        while block := list(islice(keys, ROWS_MAX)):
            some = list(islice(values, ROWS_MAX))
            yield {
                "store": pa.repeat(store, len(block)),
                "key": block,
                "value": some,
                "touched_at": _touches(some) if state.entries.is_map else _no_touches(len(some)),
            }


def _changes(moment: Moment, logs: Logs, at: At) -> Blocks:
    """Yield the changes of batches whose increment is in the log: a transaction that was given up is not."""
    waiting: list[tuple[int, ChangesRecord]] = []
    for offset, entry in _read(moment, logs, at):
        if isinstance(entry, ChangesRecord):
            waiting.append((offset, entry))
        elif isinstance(entry, Claim):
            waiting = []
        else:
            yield from _cleared(offset, entry)
            for place, record in waiting:
                yield from _changed(place, record)
            waiting = []


def _cleared(offset: int, increment: Increment) -> Blocks:
    for store in increment.cleared:
        yield {
            "batch": [increment.batch],
            "offset": [offset],
            "change_type": ["clear"],
            "store": [store],
            "key": [None],
            "value": [None],
            "touched_at": _no_touches(1),
        }


def _changed(offset: int, record: ChangesRecord) -> Blocks:
    for store, changes in record.stores.items():
        count = len(changes)
        yield {
            "batch": pa.repeat(record.batch, count),
            "offset": pa.repeat(offset, count),
            "change_type": ["delete" if v is None else "update" for v in changes.values()],
            "store": pa.repeat(store, count),
            "key": list(changes),
            "value": list(changes.values()),
            "touched_at": _touches(list(changes.values())),
        }


Table = dict[str, tuple[pa.DataType, Callable[[Any, Any], Any]]]
"""Column → its type, and its value in a row of (offset, what is there)."""


def _table(rows: Callable[[Moment, Logs, At], Iterator[tuple[Any, Any]]], table: Table) -> SourceView:

    def blocks(moment: Moment, logs: Logs, at: At) -> Blocks:
        every = rows(moment, logs, at)
        while some := list(islice(every, ROWS_MAX)):
            yield {name: [value(*row) for row in some] for name, (_, value) in table.items()}

    return SourceView({name: kind for name, (kind, _) in table.items()}, blocks)


def _entries(kind: type[Any]) -> Callable[[Moment, Logs, At], Iterator[tuple[Any, Any]]]:
    return lambda moment, logs, at: (row for row in _read(moment, logs, at) if isinstance(row[1], kind))


def _pointers(moment: Moment, logs: Logs, at: At) -> Iterator[tuple[Any, Any]]:
    """Yield the snapshots that the last increment points to, newest first, with whether they are not trimmed yet."""
    found = last_batch(moment, logs, at)
    return ((is_there(each, moment), each) for each in (found.increment.pointers if found is not None else ()))


def _fields(kind: pa.DataType, *names: str) -> Table:
    return {name: (kind, partial(_field, name)) for name in names}


def _field(name: str, _: object, entry: object) -> object:
    return getattr(entry, name)


def _read(moment: Moment, logs: Logs, at: At) -> Iterator[tuple[int, Claim | ChangesRecord | Increment]]:
    """Return what can be read, up to the first batch out of bounds.

    Raises:
        StateUnreachable: the changes of the first batch that is asked for are gone.
    """
    first = at.from_batch or 0
    check = moment.log_start > 0 and at.from_batch is not None
    for records in logs.increments(_start(moment, logs, at), moment.log_end):
        for record in records:
            entry = judge(record).entry
            if isinstance(entry, Increment):
                if not at.admits(Found(record.offset, entry)):
                    return
                if check and entry.batch >= first:  # what is before the first increment may be gone
                    raise _too_early(moment, first, entry.batch)
                check = False
            is_early = isinstance(entry, ChangesRecord | Increment) and entry.batch < first
            if isinstance(entry, Claim | ChangesRecord | Increment) and not is_early:
                yield record.offset, entry


def _start(moment: Moment, logs: Logs, at: At) -> int:
    """Start at the increment of the newest snapshot before the first batch: nothing before it is needed."""
    found = last_batch(moment, logs, At()) if at.from_batch is not None else None
    pointers = found.increment.pointers if found is not None else []
    offsets = [p.increment_offset for p in pointers if p.batch < (at.from_batch or 0)]
    return max([moment.log_start, *offsets])


def _too_early(moment: Moment, first: int, there: int) -> StateUnreachable:
    return StateUnreachable(
        f"partition {moment.partition}: the changes of batch {first} are gone, because the increments begin at offset"
        f" {moment.log_start}, with batch {there}",
        hint=f"ask for batches from {there + 1} on, with the option from.batch",
    )


_OFFSET: Table = {"offset": (_LONG, lambda offset, _: offset)}
_DIGEST: Table = {"digest": (_TEXT, lambda _, entry: str(entry.digest) if entry.digest else None)}
_INCREMENTS: Table = {
    **_OFFSET,
    **_fields(_LONG, "batch", "owner_epoch", "previous_offset"),
    "written_at": (_TIME, lambda _, entry: entry.written_at_ms * 1000),
    "positions": (_POSITIONS, lambda _, entry: list(entry.positions.items())),
    **_fields(_LONG, "record_count"),
    "skipped_count": (_LONG, lambda _, entry: sum(r.record_count for r in entry.ranges) - entry.record_count),
    "change_count": (_LONG, lambda _, entry: entry.changes.entry_count if entry.changes else None),
    "outputs": (_POSITIONS, lambda _, entry: list(entry.outputs.items())),
    **_DIGEST,
    "app_version": (_TEXT, lambda _, entry: entry.origin.app_version),
    "schema_version": (_LONG, lambda _, entry: entry.origin.schema_version),
    "snapshot_id": (_TEXT, lambda _, entry: entry.pointers[0].snapshot_id if entry.pointers else None),
    "decision": (pa.map_(_TEXT, _TEXT), lambda _, entry: list(entry.decision.items()) if entry.decision else None),
}
_CLAIMS: Table = {
    **_OFFSET,
    **_fields(_TEXT, "process_id", "instance_id", "host"),
    **_fields(_LONG, "pid"),
    "started_at": (_TIME, lambda _, entry: entry.started_at_ms * 1000),
}
_SNAPSHOTS: Table = {
    **_fields(_TEXT, "snapshot_id"),
    **_fields(_LONG, "manifest_offset", "first_chunk_offset", "batch", "increment_offset"),
    **_DIGEST,
    "is_there": (pa.bool_(), lambda there, _: there),
}
_STORED: dict[str, pa.DataType] = {"store": _TEXT, "key": None, "value": None, "touched_at": _TIME}

VIEWS: dict[str, SourceView] = {
    "state": SourceView(_STORED, _state),
    "changes": SourceView({"batch": _LONG, "offset": _LONG, "change_type": _TEXT, **_STORED}, _changes),
    "increments": _table(_entries(Increment), _INCREMENTS),
    "claims": _table(_entries(Claim), _CLAIMS),
    "snapshots": _table(_pointers, _SNAPSHOTS),
}
"""By name. A type that is None is that of what is stored."""


_TIME_MS_END = 253_402_300_800_000  # the year 10000; a state of one's own may hold any bytes


def _touches(stored: Sequence[bytes | None]) -> Sequence[int | None] | pa.Array:
    if not any(map(is_marked, filter(None, stored))):  # as in most maps
        return _no_touches(len(stored))
    return [_touched(value) for value in stored]


def _no_touches(count: int) -> pa.Array:
    """Say that no value has a stamp: they are shown as they are."""
    return pa.nulls(count, _TIME)


def _touched(stored: bytes | None) -> int | None:
    """Say when an entry was touched last, in microseconds; None: its value does not say, or names no time of Spark."""
    touched_ms = None if stored is None else touched_at(stored)
    return touched_ms * 1000 if touched_ms is not None and 0 <= touched_ms < _TIME_MS_END else None


def as_json(stored: bytes | None) -> str | None:
    """Show a stored key or value as JSON text, a key of several parts as an array; else as base64 in a JSON string."""
    if stored is None:
        return None
    try:
        return msgspec.json.encode(stored_key(stored)).decode()
    except (ValueError, TypeError, RecursionError):
        return msgspec.json.encode(base64.b64encode(stored).decode()).decode()
