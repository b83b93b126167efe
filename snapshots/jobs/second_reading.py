"""The newest snapshots read again by the Java client and hashed by Spark itself: none of our code but the decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

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

_DIGESTS = """
    SELECT partition, store, count(*) AS entries,
        sum(a & 4294967295) AS a_low, sum(shiftrightunsigned(a, 32)) AS a_high,
        sum(b & 4294967295) AS b_low, sum(shiftrightunsigned(b, 32)) AS b_high
    FROM (SELECT partition, store, xxhash64(k, v) AS a, xxhash64(v, k) AS b FROM {entries})
    GROUP BY partition, store"""
# In halves: ANSI mode refuses sums beyond 2^63. Good for 2^31 entries of a partition.

_ROWS_MAX = 10_000
"""Of an Arrow batch."""

Batches = Iterator[pa.RecordBatch]
Wanted = Mapping[tuple[int, int], tuple[str, int]]
"""Partition and offset of a chunk → its snapshot's id and its sequence in it."""


def witnessed(
    spark: SparkSession,
    source: KafkaSource,
    topic: str,
    partition_count: int,
    newest: Mapping[int, Newest],
) -> dict[int, Digest]:
    """Map each partition to the digest of what is in the chunks of its newest snapshot. Partitions without entries are
    absent.

    Fails on a damaged chunk: only whole snapshots belong here.
    """
    wanted: Wanted = {
        (partition, ref.offset): (each.manifest.snapshot_id, ref.sequence)
        for partition, each in newest.items()
        for ref in each.manifest.chunks
    }
    if not wanted:
        return {}
    chunks = source.frame(_only(topic, partition_count, wanted), ("partition", "offset", "value"))
    rows = spark.sql(_DIGESTS, entries=decode_entries(chunks, wanted)).collect()
    found: dict[int, Digest] = {}
    for row in rows:
        found[row.partition] = found.get(row.partition, EMPTY).plus(
            _digest(row).in_store(row.store)
        )
    return found


def decode_entries(records: DataFrame, wanted: Wanted) -> DataFrame:
    """Return the entries of the `wanted` chunks among records (partition, offset, value), in the columns of `ENTRIES`.

    A chunk that says that it is of another snapshot or place gives none, as a restore would refuse it.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield from _entry_rows(batch, wanted)

    return records.mapInArrow(run, from_arrow_schema(ENTRIES))


def _entry_rows(batch: pa.RecordBatch, wanted: Wanted) -> Batches:
    places = zip(*(batch.column(name).to_pylist() for name in ("partition", "offset")), strict=True)
    for (partition, offset), value in zip(places, batch.column("value"), strict=True):
        place = wanted.get((partition, offset))
        if place is None:
            continue
        chunk = decode(value.as_py())
        if not isinstance(chunk, Chunk):
            raise TypeError(f"a verified chunk is a {type(chunk).__name__}")
        if (chunk.snapshot_id, chunk.sequence) != place:
            continue
        for entries in _blocks(chunk):
            columns = [
                pa.repeat(pa.scalar(partition, pa.int32()), len(entries)),
                pa.repeat(chunk.store, len(entries)),
                pa.array([key for key, _ in entries], pa.binary()),
                pa.array([value for _, value in entries], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=ENTRIES)


def _blocks(chunk: Chunk) -> Iterator[list[tuple[bytes, bytes]]]:
    entries = chain.from_iterable(part.entries.items() for part in chunk.slices)
    while block := list(islice(entries, _ROWS_MAX)):
        yield block


def _only(topic: str, partition_count: int, wanted: Wanted) -> Frozen:
    """Freeze the topic from the first to the last of these records, per partition; nothing of the others."""
    starts, ends = [0] * partition_count, [0] * partition_count
    for number in {partition for partition, _ in wanted}:
        offsets = [offset for partition, offset in wanted if partition == number]
        starts[number], ends[number] = min(offsets), max(offsets) + 1
    return Frozen(topic, starts, ends, "read_uncommitted")


def _digest(row: Row) -> Digest:
    a, b = ((high << 32) + low for low, high in ((row.a_low, row.a_high), (row.b_low, row.b_high)))
    return Digest(row.entries, a & MASK, b & MASK)
