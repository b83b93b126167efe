"""The `spark.read.format("snapreplay")`: an app's own topics as DataFrames, by Spark's Python Data Source API.

The client is in the task: no jars, no shuffle, one task per state partition. The offsets are fixed when the DataFrame
is made, so two actions on it see one moment.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from snapreplay.errors import UsageError
from snapreplay.snapshots.format.envelope import KINDS
from snapreplay.snapshots.format.records import ChangesRecord, Increment, LogEntry
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze
from snapreplay.snapshots.log.batches import Pending
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.records import Logs, Moment, judge
from snapreplay.snapshots.proof.state import At, state_at
from snapreplay.state.keys import stored_key
from snapreplay.state.values import bare, is_marked, touched_at

OpenCluster = Callable[[Mapping[str, str]], AbstractContextManager[LogReader]]
"""A reader by the client's properties, `bootstrap.servers` among them."""

_OPTIONS = frozenset({"app.id", "view", "stored", "partitions", "at.batch", "at.timestamp"})

_STORED = ("key", "value")


class UnknownOption(UsageError):
    """An option of the Spark data source does not exist, or has a wrong value.

    Safe: Nothing was read or changed.
    """


class TopicsSource(DataSource):
    """The data source `format("snapreplay")`. Options:

    app.id: whose topics.
    kafka.*: properties of the client; `kafka.bootstrap.servers` is one of them.
    view: `state` (the default), `changes` or `increments`.
    stored: keys and values as `json` text (the default) or `raw` bytes.
    partitions: such as `0,3`; the default is all.
    at.batch, at.timestamp: the last batch to count; the default is the latest. `at.timestamp` is ISO 8601 and means
        when the batch was written.
    """

    open_cluster: ClassVar[OpenCluster]

    @classmethod
    def name(cls) -> str:
        return "snapreplay"

    def schema(self) -> StructType:
        """Return the schema; Spark keeps this object as it is after this call: the moment is fixed here."""
        self.query = _query_of(self.options)
        self.moments = self._frozen()
        return from_arrow_schema(self.query.arrow)

    def reader(self, schema: StructType) -> TopicsReader:  # noqa: ARG002 - Spark passes it by name
        if not hasattr(self, "moments"):  # a schema of the user's own
            self.schema()
        return TopicsReader(type(self).open_cluster, self.query, self.moments)

    def _frozen(self) -> list[Moment]:
        with type(self).open_cluster(self.query.kafka) as reader:
            moments = freeze(reader, self.query.app_id)
        numbers = self.query.partitions
        if numbers is not None and not numbers <= set(range(len(moments))):
            raise UnknownOption(
                f"option partitions={sorted(numbers)}: {self.query.app_id!r} has partitions 0 to {len(moments) - 1}"
            )
        return [each for each in moments if numbers is None or each.partition in numbers]


@dataclass(frozen=True)
class _Query:
    """The options, read. `partitions`: None means all."""

    app_id: str
    kafka: Mapping[str, str]
    view: str
    is_raw: bool
    partitions: set[int] | None
    at: At

    @property
    def arrow(self) -> pa.Schema:
        return VIEWS[self.view].schema(pa.binary() if self.is_raw else pa.string())


class _Partition(InputPartition):
    def __init__(self, moment: Moment) -> None:
        super().__init__(moment.partition)
        self.moment = moment


class TopicsReader(DataSourceReader):
    """One Spark partition per state partition."""

    def __init__(self, open_cluster: OpenCluster, query: _Query, moments: list[Moment]) -> None:
        self._open_cluster = open_cluster
        self._query = query
        self._moments = moments

    def partitions(self) -> list[InputPartition]:
        return [_Partition(moment) for moment in self._moments]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read; errors are those of `proof.state`, and of the client."""
        if not isinstance(partition, _Partition):
            return  # Spark's own, where there are none
        query, moment = self._query, partition.moment
        view: SourceView = VIEWS[query.view]
        schema, columns = query.arrow, _Columns(query)
        with self._open_cluster(query.kafka) as reader:
            logs = PartitionLogs(reader, query.app_id, moment.partition)
            for block in view.blocks(moment, logs, query.at):
                yield columns.batch(block, moment.partition, schema)


class _Columns:
    """Makes Arrow batches of blocks, in a task."""

    def __init__(self, query: _Query) -> None:
        self._query = query

    def batch(self, block: Block, partition: int, schema: pa.Schema) -> pa.RecordBatch:
        count = len(next(iter(block.values())))
        columns = {"partition": pa.repeat(pa.scalar(partition, pa.int32()), count), **block}
        # An array of the view's own: none of the values has a stamp.
        if not self._query.is_raw and isinstance(block.get("touched_at"), list):
            columns["value"] = [None if v is None else bare(v) for v in columns["value"]]
        arrays = [self._array(field, columns[field.name]) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, values: Sequence[Any] | pa.Array) -> pa.Array:
        if isinstance(values, pa.Array):
            return values
        if field.name in _STORED and not self._query.is_raw:
            values = [as_json(each) for each in values]
        return pa.array(values, field.type)


def _query_of(options: Mapping[str, str]) -> _Query:
    """Read the options, or raise UnknownOption, which names one."""
    own = {name.lower(): value for name, value in options.items()}
    kafka = {n.removeprefix("kafka."): v for n, v in own.items() if n.startswith("kafka.")}
    for name in own:
        if name not in _OPTIONS and not name.startswith("kafka."):
            raise UnknownOption(f"option {name!r} is none of {', '.join(sorted(_OPTIONS))}, kafka.*")
    for name in ("app.id", "kafka.bootstrap.servers"):
        if not own.get(name):
            raise UnknownOption(f"option {name!r} is missing")
    numbers = own.get("partitions")
    return _Query(
        app_id=own["app.id"],
        kafka=kafka,
        view=_one_of(own, "view", "state", VIEWS),
        is_raw=_one_of(own, "stored", "json", ("json", "raw")) == "raw",
        partitions=None if numbers is None else {_number("partitions", n) for n in numbers.split(",")},
        at=At(
            batch=_number("at.batch", own["at.batch"]) if "at.batch" in own else None,
            written_at_ms=_time_ms(own["at.timestamp"]) if "at.timestamp" in own else None,
        ),
    )


def _one_of(own: Mapping[str, str], name: str, default: str, values: Collection[str]) -> str:
    value = own.get(name, default)
    if value not in values:
        raise UnknownOption(f"option {name}={value!r} is none of {', '.join(values)}")
    return value


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise UnknownOption(f"option {name}={value!r} is not a number") from error


def _time_ms(value: str) -> int:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:  # the zone of whichever process reads it is nobody's intention
        raise UnknownOption(
            f"option at.timestamp={value!r} is not a time with an offset from UTC",
            hint="write it as 2026-11-22T10:00:00+00:00",
        )
    return int(time.timestamp() * 1000)


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

    def schema(self, stored: pa.DataType) -> pa.Schema:
        """Return the schema; `stored`: the type of keys and values."""
        own = {name: stored if name in _STORED else kind for name, kind in self.columns.items()}
        return pa.schema({"partition": _INT, **own})


def _state(moment: Moment, logs: Logs, at: At) -> Blocks:
    state = state_at(moment, logs, at)
    if state is None:
        return
    for store, entries in state.entries.stored():
        while block := dict(islice(entries, ROWS_MAX)):
            values = list(block.values())
            yield {
                "store": pa.repeat(store, len(block)),
                "key": list(block),
                "value": values,
                "touched_at": _touches(values),
            }


def _changes(moment: Moment, logs: Logs, at: At) -> Blocks:
    """Yield the changes of batches whose increment is in the log: a transaction that was given up is not."""
    pending: Pending[tuple[int, LogEntry]] = Pending()
    for offset, entry in _read(moment, logs, at):
        changes = pending.add(KINDS[type(entry)], (offset, entry))
        if isinstance(entry, Increment):
            yield from _cleared(offset, entry)
        for place, record in changes or ():
            if isinstance(record, ChangesRecord):
                yield from _changed(place, record)


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


Table = dict[str, tuple[pa.DataType, Callable[[int, Increment], Any]]]
"""Column → its type, and its value for an increment at an offset."""


def _increments(moment: Moment, logs: Logs, at: At) -> Blocks:
    rows = ((offset, entry) for offset, entry in _read(moment, logs, at) if isinstance(entry, Increment))
    while some := list(islice(rows, ROWS_MAX)):
        yield {name: [value(*row) for row in some] for name, (_, value) in _INCREMENTS.items()}


def _fields(kind: pa.DataType, *names: str) -> Table:
    return {name: (kind, partial(_field, name)) for name in names}


def _field(name: str, _: int, increment: Increment) -> object:
    return getattr(increment, name)


def _read(moment: Moment, logs: Logs, at: At) -> Iterator[tuple[int, LogEntry]]:
    """Return what can be read, up to the first batch out of bounds."""
    for records in logs.increments(moment.log_start, moment.log_end):
        for record in records:
            entry = judge(record).entry
            if isinstance(entry, Increment) and not at.admits(Found(record.offset, entry)):
                return
            if entry is not None:
                yield record.offset, entry


_INCREMENTS: Table = {
    "offset": (_LONG, lambda offset, _: offset),
    **_fields(_LONG, "batch", "owner_epoch", "previous_offset"),
    "written_at": (_TIME, lambda _, entry: entry.written_at_ms * 1000),
    "positions": (_POSITIONS, lambda _, entry: list(entry.positions.items())),
    **_fields(_LONG, "record_count"),
    "skipped_count": (_LONG, lambda _, entry: sum(r.record_count for r in entry.ranges) - entry.record_count),
    "change_count": (_LONG, lambda _, entry: entry.changes.entry_count if entry.changes else None),
    "outputs": (_POSITIONS, lambda _, entry: list(entry.outputs.items())),
    "digest": (_TEXT, lambda _, entry: str(entry.digest) if entry.digest else None),
    "app_version": (_TEXT, lambda _, entry: entry.origin.app_version),
    "schema_version": (_LONG, lambda _, entry: entry.origin.schema_version),
    "snapshot_id": (_TEXT, lambda _, entry: entry.pointers[0].snapshot_id if entry.pointers else None),
    "decision": (pa.map_(_TEXT, _TEXT), lambda _, entry: list(entry.decision.items()) if entry.decision else None),
}
_ENTRY: dict[str, pa.DataType] = {"store": _TEXT, "key": None, "value": None, "touched_at": _TIME}

VIEWS: dict[str, SourceView] = {
    "state": SourceView(_ENTRY, _state),
    "changes": SourceView({"batch": _LONG, "offset": _LONG, "change_type": _TEXT, **_ENTRY}, _changes),
    "increments": SourceView({name: kind for name, (kind, _) in _INCREMENTS.items()}, _increments),
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
