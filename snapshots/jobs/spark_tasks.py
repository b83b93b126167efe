"""One task of Spark per part of the work, or per few of them: a client is opened in it, and values come back.

Each worker imports this module: what only the driver needs stays out of it (pandas alone takes 25 MB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.snapshots.proof.records import Moment

C = TypeVar("C")
T = TypeVar("T")

_RESULT = pa.schema({"value": pa.binary(), "problem": pa.string(), "hint": pa.string()})
_TASKS_PER_CORE = 4
"""A task costs a client and a Python worker: with one for each of 200 small partitions, nothing else counts."""


class TaskFailed(StopError):
    """A Spark task could not read or check its partition."""


def for_each(
    spark: SparkSession,
    parts: Sequence[Moment],
    open_client: Callable[[], AbstractContextManager[C]],
    work: Callable[[C, Moment], object],
    kind: type[T],
) -> list[T]:
    """Return what `work` gives for each part, in one job, with a client that each task opens.

    `work` is sent to the executors, its values must encode.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_client() as client:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    rows = [_row(work, client, parts[number])]
                    yield pa.RecordBatch.from_pylist(rows, schema=_RESULT)

    count = len(parts)
    tasks = min(count, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, count, 1, tasks)
    rows = numbers.mapInArrow(run, from_arrow_schema(_RESULT)).collect()
    for row in rows:
        if row.problem is not None:
            raise TaskFailed(row.problem, hint=row.hint or "")
    return [msgspec.msgpack.decode(bytes(row.value), type=kind) for row in rows]


def _row(work: Callable[[C, Moment], object], client: C, part: Moment) -> dict[str, object]:
    try:
        return {"value": msgspec.msgpack.encode(work(client, part))}
    except SnapreplayError as error:
        return {"problem": f"partition {part.partition}: {error.message}", "hint": error.hint}
