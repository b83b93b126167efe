"""The `spark.read.format("snapreplay")`: an app's own topics as DataFrames, by Spark's Python Data Source API.

The client is in the task: no jars, no shuffle, one task per state partition. The offsets are fixed when the DataFrame
is made, so two actions on it see one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from snapreplay.app.load import load_app
from snapreplay.errors import UsageError
from snapreplay.snapshots.jobs.fixed_logs import LogReader, PartitionLogs, freeze
from snapreplay.snapshots.jobs.source_views import VIEWS, Block, SourceView, as_json
from snapreplay.snapshots.jobs.typed import Stored, stored_types
from snapreplay.snapshots.proof.records import Moment
from snapreplay.snapshots.proof.state import At
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.stamp import bare

OpenCluster = Callable[[Mapping[str, str]], AbstractContextManager[LogReader]]
"""A reader by the client's properties, `bootstrap.servers` among them."""

_OPTIONS = frozenset(
    {"app", "app.id", "view", "stored", "partitions", "at.batch", "at.offset", "at.timestamp", "from.batch"}
)

_STORED = ("key", "value")
_OF_BATCHES = ("changes", "increments")
"""Views with rows of each batch."""


class UnknownOption(UsageError):
    """An option of the source does not exist, or has an impossible value.

    Safe: Nothing was read or changed.
    """


class TopicsSource(DataSource):
    """The data source `format("snapreplay")`. Options:

    app.id: whose topics.
    app: `module:app` or a path, in place of `app.id`: keys and values become columns of the app's types. Entries
        that are not of the app's map, such as pending timers, are left out.
    kafka.*: properties of the client; `kafka.bootstrap.servers` is one of them.
    view: `state` (the default), `changes`, `increments`, `snapshots` or `claims`.
    stored: keys and values as `json` text (the default) or `raw` bytes.
    partitions: such as `0,3`; the default is all.
    at.batch, at.offset, at.timestamp: the last batch to count; the default is the latest. `at.offset` is the next
        offset of the increments topic, `at.timestamp` is ISO 8601 and means when the batch was written.
    from.batch: the first batch of the views `changes` and `increments`; the default is the first that is left.
    """

    open_cluster: ClassVar[OpenCluster]

    @classmethod
    def name(cls) -> str:
        return "snapreplay"

    def schema(self) -> StructType:
        """Return the schema; Spark keeps this object as it is after this call: the moment is fixed here."""
        self.asked = _asked(self.options)
        self.moments = self._frozen()
        return from_arrow_schema(self.asked.arrow)

    def reader(self, schema: StructType) -> TopicsReader:  # noqa: ARG002 - Spark passes it by name
        if not hasattr(self, "moments"):  # a schema of the user's own
            self.schema()
        return TopicsReader(type(self).open_cluster, self.asked, self.moments)

    def _frozen(self) -> list[Moment]:
        with type(self).open_cluster(self.asked.kafka) as reader:
            moments = freeze(reader, self.asked.app_id)
        numbers = self.asked.partitions
        if numbers is not None and not numbers <= set(range(len(moments))):
            raise UnknownOption(
                f"option partitions={sorted(numbers)}: {self.asked.app_id!r} has partitions 0 to {len(moments) - 1}"
            )
        return [each for each in moments if numbers is None or each.partition in numbers]


@dataclass(frozen=True)
class _Asked:
    """The options, read. `partitions`: None means all."""

    app_id: str
    app: str | None
    kafka: Mapping[str, str]
    view: str
    is_raw: bool
    partitions: set[int] | None
    at: At

    @property
    def arrow(self) -> pa.Schema:
        if self.app is not None:
            keys, values = stored_types(load_app(self.app))
            return VIEWS[self.view].schema(keys.type, values.type)
        stored = pa.binary() if self.is_raw else pa.string()
        return VIEWS[self.view].schema(stored, stored)


class _Partition(InputPartition):
    def __init__(self, moment: Moment) -> None:
        super().__init__(moment.partition)
        self.moment = moment


class TopicsReader(DataSourceReader):
    """One Spark partition per state partition."""

    def __init__(self, open_cluster: OpenCluster, asked: _Asked, moments: list[Moment]) -> None:
        self._open_cluster = open_cluster
        self._asked = asked
        self._moments = moments

    def partitions(self) -> list[InputPartition]:
        return [_Partition(moment) for moment in self._moments]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read; errors are those of `proof.state`, and of the client."""
        if not isinstance(partition, _Partition):
            return  # Spark's own, where there are none
        asked, moment = self._asked, partition.moment
        view: SourceView = VIEWS[asked.view]
        schema, columns = asked.arrow, _Columns(asked)
        with self._open_cluster(asked.kafka) as reader:
            logs = PartitionLogs(reader, asked.app_id, moment.partition)
            for block in view.blocks(moment, logs, asked.at):
                if asked.app is None or _is_of_app(block):
                    yield columns.batch(block, moment.partition, schema)


def _is_of_app(block: Block) -> bool:
    """Say whether its keys and values have the types of the app's map: timers are in stores of their own."""
    stores = block.get("store", ())
    return len(stores) == 0 or str(stores[0]) == DEFAULT_STORE


class _Columns:
    """Makes Arrow batches of blocks, in a task."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._typed = dict[str, Stored]()
        if asked.app is not None:
            self._typed = dict(zip(_STORED, stored_types(load_app(asked.app)), strict=True))

    def batch(self, block: Block, partition: int, schema: pa.Schema) -> pa.RecordBatch:
        count = len(next(iter(block.values())))
        columns = {"partition": pa.repeat(pa.scalar(partition, pa.int32()), count), **block}
        # An array of the view's own: none of the values has a stamp.
        if not self._asked.is_raw and isinstance(block.get("touched_at"), list):
            columns["value"] = [None if v is None else bare(v) for v in columns["value"]]
        arrays = [self._array(field, columns[field.name]) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, values: Sequence[Any] | pa.Array) -> pa.Array:
        if isinstance(values, pa.Array):
            return values
        if field.name in self._typed:
            return self._typed[field.name].array(values)
        if field.name in _STORED and not self._asked.is_raw:
            values = [as_json(each) for each in values]
        return pa.array(values, field.type)


def _asked(options: Mapping[str, str]) -> _Asked:
    """Read the options, or raise UnknownOption, which names one."""
    own = {name.lower(): value for name, value in options.items()}
    kafka = {n.removeprefix("kafka."): v for n, v in own.items() if n.startswith("kafka.")}
    for name in own:
        if name not in _OPTIONS and not name.startswith("kafka."):
            raise UnknownOption(f"option {name!r} is none of {', '.join(sorted(_OPTIONS))}, kafka.*")
    app_id = _app_id(own)
    if not own.get("kafka.bootstrap.servers"):
        raise UnknownOption("option 'kafka.bootstrap.servers' is missing")
    numbers = own.get("partitions")
    return _Asked(
        app_id=app_id,
        app=own.get("app"),
        kafka=kafka,
        view=_one_of(own, "view", "state", VIEWS),
        is_raw=_one_of(own, "stored", "json", ("json", "raw")) == "raw",
        partitions=None if numbers is None else {_number("partitions", n) for n in numbers.split(",")},
        at=At(
            batch=_number("at.batch", own["at.batch"]) if "at.batch" in own else None,
            offset=_number("at.offset", own["at.offset"]) if "at.offset" in own else None,
            written_at_ms=_time_ms(own["at.timestamp"]) if "at.timestamp" in own else None,
            from_batch=_first_batch(own),
        ),
    )


def _app_id(own: Mapping[str, str]) -> str:
    if own.get("app") and own.get("app.id"):
        raise UnknownOption("options app and app.id both say whose topics are meant: give one")
    if own.get("app"):
        if "stored" in own:
            raise UnknownOption("options app and stored both say how keys and values are shown")
        return load_app(own["app"]).app_id
    if not own.get("app.id"):
        raise UnknownOption("option 'app.id' is missing")
    return own["app.id"]


def _first_batch(own: Mapping[str, str]) -> int | None:
    if "from.batch" not in own:
        return None
    if (view := own.get("view", "state")) not in _OF_BATCHES:
        raise UnknownOption(f"option from.batch goes with the views {' and '.join(_OF_BATCHES)}, not with {view}")
    return _number("from.batch", own["from.batch"])


def _one_of(own: Mapping[str, str], name: str, default: str, values: Collection[str]) -> str:
    value = own.get(name, default)
    if value not in values:
        raise UnknownOption(f"option {name}={value!r} is none of {', '.join(values)}")
    return value


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise UnknownOption(f"option {name}={value!r} is no number") from error


def _time_ms(value: str) -> int:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:  # the zone of whichever process reads it is nobody's intention
        raise UnknownOption(
            f"option at.timestamp={value!r} is no time with an offset from UTC",
            hint="write it as 2026-11-22T10:00:00+00:00",
        )
    return int(time.timestamp() * 1000)
