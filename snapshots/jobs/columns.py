"""Records of our topics as columns: the only part of an audit that is Python.

The envelope is judged natively (`judged`), bodies are decoded in Arrow batches. Each record gets a
`state`: ok; damaged (envelope); format (newer than this build); body (intact envelope, wrong body);
foreign (none of ours). Of all but `ok`, only partition, offset and kind are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas  # noqa: F401 - else Spark misses it in the middle of a job, as an error of its own
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from snapreplay.app import names
from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.format.envelope import FORMAT_VERSION, KIND_HEADER, decode
from snapreplay.snapshots.format.records import (
    ChangesRecord,
    Chunk,
    Claim,
    Increment,
    LogEntry,
    Manifest,
)

_LONG, _TEXT = pa.int64(), pa.string()
_POSITIONS = pa.map_(_TEXT, _LONG)


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_RECORD = {"partition": pa.int32(), "offset": _LONG, "kind": pa.int32(), "state": _TEXT}

LOG = pa.schema(
    {
        **_RECORD,
        "problem": _TEXT,
        "app_id": _TEXT,
        "batch": _LONG,
        "previous_offset": _LONG,
        "owner_epoch": _LONG,
        "ranges": pa.list_(_struct(topic=_TEXT, start=_LONG, end=_LONG, count=_LONG)),
        "positions": _POSITIONS,
        "genesis": _POSITIONS,
        "record_count": _LONG,
        "skips": _LONG,
        "changes": _struct(records=_LONG, entries=_LONG, crc=_LONG),
        "digest": _TEXT,
        "pointers": pa.list_(
            _struct(
                snapshot_id=_TEXT,
                manifest_offset=_LONG,
                first_chunk_offset=_LONG,
                batch=_LONG,
                increment_offset=_LONG,
                digest=_TEXT,
            )
        ),
        "decision": pa.map_(_TEXT, _TEXT),
        "begins_anew": pa.bool_(),
        "begun_by_owner": pa.bool_(),
        "log_id": _TEXT,
        "snaps_id": _TEXT,
        "part": _LONG,
        "entries": _LONG,
    }
)
"""A record of the increments topic; `part` and `entries` are of changes, `app_id` of claims and
increments. `log_id` and `snaps_id` are the ids of both topics as the increment's owner knew them; "" if the
cluster has none.
"""

SNAPSHOTS = pa.schema(
    {
        **_RECORD,
        "size": _LONG,
        "crc": _LONG,
        "problem": _TEXT,
        "snapshot_id": _TEXT,
        "batch": _LONG,
        "increment_offset": _LONG,
        "digest": _TEXT,
        "entries_digest": _TEXT,
        "entry_count": _LONG,
        "digest_count": _LONG,
        "chunks": pa.list_(_struct(offset=_LONG, sequence=_LONG, size=_LONG, crc=_LONG)),
    }
)
"""A record of the snapshots topic; the columns from `snapshot_id` on are of manifests. `crc` is of the whole value."""

ENTRIES = pa.schema({"partition": pa.int32(), "k": pa.binary(), "v": pa.binary()})
"""An entry of a chunk, key and value as stored."""

_SEALED = "crc32(concat(substring(value, 5, 4), substring(value, 13)))"
_SEAL = "CAST(conv(hex(substring(value, 9, 4)), 16, 10) AS BIGINT)"
_OURS = f"coalesce(exists(headers, h -> h.key = '{KIND_HEADER}'), false)"
STATE = f"""CASE
    WHEN substring(value, 1, 4) = X'534E5250' AND length(value) >= 12 AND {_SEALED} = {_SEAL}
    THEN IF(substring(value, 5, 1) = X'{FORMAT_VERSION:02X}', 'ok', 'format')
    WHEN substring(value, 1, 4) = X'534E5250' OR {_OURS} THEN 'damaged'
    ELSE 'foreign' END"""
KIND = "CAST(conv(hex(substring(value, 6, 1)), 16, 10) AS INT)"


def judged(records: DataFrame, *more: str) -> DataFrame:
    """Select partition, offset, kind (as the record says; null if it says nothing) and state, then `more`."""
    return records.selectExpr("partition", "offset", f"{KIND} AS kind", f"{STATE} AS state", *more)


def decode_log(records: DataFrame) -> DataFrame:
    """Decode the increments topic into the columns of `LOG`."""
    return _mapped(judged(records, "value"), LOG, _log_rows)


def decode_snapshots(records: DataFrame) -> DataFrame:
    """Decode the snapshots topic into the columns of `SNAPSHOTS`; chunks are measured but not decoded."""
    manifests = "IF(substring(value, 6, 1) = X'05', value, NULL) AS value"
    measured = judged(
        records, manifests, "CAST(length(value) AS BIGINT) AS size", "crc32(value) AS crc"
    )
    return _mapped(measured, SNAPSHOTS, _snapshot_rows)


def decode_entries(chunks: DataFrame) -> DataFrame:
    """Decode chunk records (partition, value, snapshot_id, sequence) into the columns of `ENTRIES`.

    A chunk that says it is of another snapshot or place gives no entries, as a restore would refuse it.
    A damaged chunk makes it fail: give it only those with the right checksum.
    """
    columns = ("partition", "value", "snapshot_id", "sequence")
    return _mapped(chunks.select(*columns), ENTRIES, _entry_rows)


Batches = Iterator[pa.RecordBatch]


def _mapped(
    frame: DataFrame, schema: pa.Schema, rows: Callable[[pa.RecordBatch], Batches]
) -> DataFrame:
    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield from rows(batch)

    return frame.mapInArrow(run, from_arrow_schema(schema))


def _log_rows(batch: pa.RecordBatch) -> Batches:
    yield pa.RecordBatch.from_pylist([_log_row(row) for row in batch.to_pylist()], schema=LOG)


def _snapshot_rows(batch: pa.RecordBatch) -> Batches:
    rows = [_snapshot_row(row) for row in batch.to_pylist()]
    yield pa.RecordBatch.from_pylist(rows, schema=SNAPSHOTS)


def _entry_rows(batch: pa.RecordBatch) -> Batches:
    for row in batch.to_pylist():
        chunk = decode(row["value"])
        if not isinstance(chunk, Chunk):
            raise TypeError(f"a verified chunk is a {type(chunk).__name__}")
        if (chunk.snapshot_id, chunk.sequence) != (row["snapshot_id"], row["sequence"]):
            continue
        for part in chunk.slices:
            count = len(part.entries)
            columns = [[row["partition"]] * count, list(part.entries), list(part.entries.values())]
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES
            )


def _log_row(row: dict[str, Any]) -> dict[str, Any]:
    entry = _decoded(row)
    match entry:
        case Claim():
            row["app_id"] = entry.app_id
        case ChangesRecord():
            row |= {
                "batch": entry.batch,
                "part": entry.part,
                "entries": sum(map(len, entry.stores.values())),
            }
        case Increment():
            row |= _increment(entry)
        case _:
            pass
    return row


def _increment(entry: Increment) -> dict[str, Any]:
    changes = entry.changes
    return {
        "app_id": entry.origin.app_id,
        "batch": entry.batch,
        "previous_offset": entry.previous_offset,
        "owner_epoch": entry.owner_epoch,
        "ranges": [
            {
                "topic": r.topic,
                "start": r.start_offset,
                "end": r.end_offset,
                "count": r.record_count,
            }
            for r in entry.ranges
        ],
        "positions": list(entry.positions.items()),
        "genesis": list(entry.genesis.start_offsets.items()),
        "record_count": entry.record_count,
        "skips": len(entry.skipped),
        "changes": changes
        and {"records": changes.record_count, "entries": changes.entry_count, "crc": changes.crc32},
        "digest": entry.digest and str(entry.digest),
        "pointers": [
            {
                "snapshot_id": p.snapshot_id,
                "manifest_offset": p.manifest_offset,
                "first_chunk_offset": p.first_chunk_offset,
                "batch": p.batch,
                "increment_offset": p.increment_offset,
                "digest": p.digest and str(p.digest),
            }
            for p in entry.pointers
        ],
        "decision": entry.decision and list(entry.decision.items()),
        "begins_anew": entry.begins_anew,
        "begun_by_owner": entry.begun_by_owner,
        "log_id": entry.topic_ids.get(names.increments_topic(entry.origin.app_id), ""),
        "snaps_id": entry.topic_ids.get(names.snapshots_topic(entry.origin.app_id), ""),
    }


def _snapshot_row(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] is None:
        return row
    entry = _decoded(row)
    if not isinstance(entry, Manifest):
        return row
    return row | {
        "snapshot_id": entry.snapshot_id,
        "batch": entry.batch,
        "increment_offset": entry.increment_offset,
        "digest": entry.digest and str(entry.digest),
        "entries_digest": str(entry.entries_digest),
        "entry_count": entry.entry_count,
        "digest_count": entry.entries_digest.count,
        "chunks": [
            {"offset": c.offset, "sequence": c.sequence, "size": c.size_bytes, "crc": c.crc32}
            for c in entry.chunks
        ],
    }


def _decoded(row: dict[str, Any]) -> LogEntry | None:
    """The record of an intact envelope; if its body cannot be read, the row says so."""
    if row["state"] != "ok":
        return None
    try:
        return decode(row["value"])
    except SnapreplayError as error:
        row |= {"state": "body", "problem": error.message}
        return None
