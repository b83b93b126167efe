"""The entries of chunks as Spark sees them."""

import pytest

from snapreplay.snapshots.jobs.second_reading import decode_entries
from tests.golden.make import FILES, GOLDEN
from tests.support.entries import entries_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("snapshot_id", "sequence"), [("5eed", 1), ("5eed", 2), ("other", 1)])
def test_entries_of_a_chunk(spark, snapshot_id, sequence) -> None:
    """Keys and values as stored; none of a chunk that says it belongs elsewhere."""
    rows = [(0, 7, (FILES / "chunk.bin").read_bytes()), (0, 8, b"not asked for")]
    records = spark.createDataFrame(rows, "partition INT, offset LONG, value BINARY")
    found = decode_entries(records, {(0, 7): (snapshot_id, sequence)}).collect()
    chunk = GOLDEN["chunk"].entry
    expected = entries_of(chunk) if (snapshot_id, sequence) == ("5eed", 1) else {}  # type: ignore[arg-type] # it is a chunk
    assert {bytes(row.k): bytes(row.v) for row in found} == expected
