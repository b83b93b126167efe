"""The newest snapshots read again by the Java client and hashed by Spark itself: none of our code but the decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pandas  # noqa: F401 - else Spark misses it in the middle of a job, as an error of its own
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import Chunk
from snapreplay.snapshots.jobs.read import Frozen, KafkaSource
from snapreplay.snapshots.proof.partition import Newest
from snapreplay.state.digest import EMPTY, MASK, Digest

ENTRIES = pa.schema(
    {"partition": pa.int32(), "store": pa.string(), "k": pa.binary(), "v": pa.binary()}
)
"""An entry of a chunk, key and value as stored."""

_REFS = "partition INT, offset LONG, snapshot_id STRING, sequence LONG"
_DIGESTS = """
    SELECT partition, store, count(*) AS entries,
        sum(a & 4294967295) AS a_low, sum(shiftrightunsigned(a, 32)) AS a_high,
        sum(b & 4294967295) AS b_low, sum(shiftrightunsigned(b, 32)) AS b_high
    FROM (SELECT partition, store, xxhash64(k, v) AS a, xxhash64(v, k) AS b FROM {entries})
    GROUP BY partition, store"""
# In halves: ANSI mode refuses sums beyond 2^63. Good for 2^31 entries of a partition.

Batches = Iterator[pa.RecordBatch]


def witnessed(
    spark: SparkSession,
    source: KafkaSource,
    topic: str,
    partition_count: int,
    newest: Mapping[int, Newest],
) -> dict[int, Digest]:
    """Partition → digest of what is in the chunks of its newest snapshot. Partitions without entries are absent.

    Fails on a damaged chunk: only whole snapshots belong here.
    """
    refs = [
        (partition, ref.offset, each.manifest.snapshot_id, ref.sequence)
        for partition, each in newest.items()
        for ref in each.manifest.chunks
    ]
    if not refs:
        return {}
    frozen = _only(topic, partition_count, [(partition, offset) for partition, offset, *_ in refs])
    wanted = spark.createDataFrame(refs, _REFS).hint("broadcast")
    chunks = source.frame(frozen, ("partition", "offset", "value")).join(
        wanted, ["partition", "offset"]
    )
    rows = spark.sql(_DIGESTS, entries=decode_entries(chunks)).collect()
    found: dict[int, Digest] = {}
    for row in rows:
        found[row.partition] = found.get(row.partition, EMPTY).plus(
            _digest(row).in_store(row.store)
        )
    return found


def decode_entries(chunks: DataFrame) -> DataFrame:
    """The entries of chunk records (partition, value, snapshot_id, sequence) in the columns of `ENTRIES`.

    A chunk that says that it is of another snapshot or place gives none, as a restore would refuse it.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield from _entry_rows(batch)

    columns = chunks.select("partition", "value", "snapshot_id", "sequence")
    return columns.mapInArrow(run, from_arrow_schema(ENTRIES))


def _entry_rows(batch: pa.RecordBatch) -> Batches:
    for row in batch.to_pylist():
        chunk = decode(row["value"])
        if not isinstance(chunk, Chunk):
            raise TypeError(f"a verified chunk is a {type(chunk).__name__}")
        if (chunk.snapshot_id, chunk.sequence) != (row["snapshot_id"], row["sequence"]):
            continue
        for part in chunk.slices:
            count = len(part.entries)
            keys, values = list(part.entries), list(part.entries.values())
            columns = [[row["partition"]] * count, [chunk.store] * count, keys, values]
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES
            )


def _only(topic: str, partition_count: int, refs: list[tuple[int, int]]) -> Frozen:
    """The topic from the first to the last of these records, per partition; nothing of the others."""
    starts, ends = [0] * partition_count, [0] * partition_count
    for number in {partition for partition, _ in refs}:
        offsets = [offset for partition, offset in refs if partition == number]
        starts[number], ends[number] = min(offsets), max(offsets) + 1
    return Frozen(topic, starts, ends, "read_uncommitted")


def _digest(row: Row) -> Digest:
    a, b = ((high << 32) + low for low, high in ((row.a_low, row.a_high), (row.b_low, row.b_high)))
    return Digest(row.entries, a & MASK, b & MASK)
