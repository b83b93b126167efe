"""What Spark says of an envelope, against what our own codec says."""

import random

import pytest

from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import RecordKind, kind_of, open_envelope
from snapreplay.snapshots.jobs.columns import decode_entries, decode_log, decode_snapshots, judged
from tests.golden.make import GOLDEN
from tests.support.entries import entries_of

RAW = "partition INT, offset LONG, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
OUR_HEADERS = [("snapreplay.kind", b"claim")]


def frame(spark, values, headers=None):
    """Raw records at the offsets 0, 1, … of partition 0."""
    rows = [(0, offset, value, headers) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RAW)


def golden(name: str) -> bytes:
    """The bytes of a golden record."""
    from tests.snapshots.format.test_records import FILES

    return (FILES / f"{name}.bin").read_bytes()


def said_by_us(value: bytes) -> str:
    """The state of a record that carries no headers, by `open_envelope`."""
    try:
        open_envelope(value)
    except UnknownFormatError:
        return "format"
    except DamagedError:
        return "damaged" if value.startswith(b"SNRP") else "foreign"
    return "ok"


def test_spark_judges_envelopes_as_we_do(spark) -> None:
    """Golden records whole, cut anywhere, and with any byte changed: the same verdict natively."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    values = [b"", b"SNRP", b"foreign"]
    for name in GOLDEN:
        value = golden(name)
        values.append(value)
        values += [value[: chance.randrange(len(value))] for _ in range(10)]
        for _ in range(30):
            position = chance.randrange(len(value))
            changed = value[position] ^ chance.randrange(1, 256)
            values.append(value[:position] + bytes([changed]) + value[position + 1 :])
    rows = judged(frame(spark, values)).collect()
    assert [row.state for row in sorted(rows, key=lambda row: row.offset)] == [
        said_by_us(value) for value in values
    ]


def test_a_header_tells_that_a_record_without_magic_was_ours(spark) -> None:
    """The first bytes lost: damaged, not foreign."""
    (row,) = judged(frame(spark, [b"????" + golden("claim")[4:]], OUR_HEADERS)).collect()
    assert row.state == "damaged"


def test_kinds_are_peeked_as_we_do(spark) -> None:
    """Byte 5, also of a record that says nothing true."""
    values = [golden(name) for name in GOLDEN]
    rows = sorted(judged(frame(spark, values)).collect(), key=lambda row: row.offset)
    assert [RecordKind(row.kind) for row in rows] == [kind_of(value) for value in values]


def test_the_log_in_columns(spark) -> None:
    """Claim, changes and increment with the fields that the checks use."""
    values = [golden(name) for name in ("claim", "changes", "changes_compressed", "increment")]
    claim, changes, more, increment = sorted(
        decode_log(frame(spark, values)).collect(), key=lambda row: row.offset
    )
    assert (claim.state, claim.app_id, claim.batch) == ("ok", "ledger", None)
    assert (changes.batch, changes.part, changes.entries) == (3, 0, 2)
    assert (more.part, more.entries) == (1, 300)
    assert (increment.batch, increment.previous_offset, increment.owner_epoch) == (3, 42, 40)
    assert [tuple(each) for each in increment.ranges] == [
        ("payments", 0, 5, 4),
        ("refunds", 12, 13, 1),
    ]
    assert increment.positions == {"payments": 5, "refunds": 13}
    assert increment.genesis == {"payments": 0, "refunds": 12}
    assert tuple(increment.changes) == (2, 302, 2**32 - 1)
    assert increment.digest == "2:ffffffffffffffff:8000000000000000"
    assert [pointer.manifest_offset for pointer in increment.pointers] == [9, 6]
    assert increment.pointers[1].digest is None
    assert increment.decision == {"finding": "input_gap", "reason": "known outage"}
    assert (claim.begins_anew, increment.begins_anew) == (None, False)
    assert (increment.begun_by_owner, increment.log_id) == (False, "b3BlcmF0aW9uc2xlZGdlcg")


def test_a_wrong_body_is_a_state_and_no_crash(spark) -> None:
    """A claim's body under another kind, sealed: the problem is told, the audit goes on."""
    value = golden("claim")
    wrong = value[:5] + bytes([RecordKind.INCREMENT]) + value[6:]
    from zlib import crc32

    sealed = wrong[:8] + crc32(wrong[12:], crc32(wrong[4:8])).to_bytes(4, "big") + wrong[12:]
    (row,) = decode_log(frame(spark, [sealed])).collect()
    assert (row.state, row.kind, row.batch) == ("body", 3, None)
    assert "missing required field" in row.problem


def test_snapshots_in_columns(spark) -> None:
    """A manifest with its list, a chunk by size and checksum only."""
    values = [golden("chunk"), golden("manifest")]
    chunk, manifest = sorted(
        decode_snapshots(frame(spark, values)).collect(), key=lambda row: row.offset
    )
    assert (chunk.kind, chunk.size, chunk.snapshot_id) == (4, len(values[0]), None)
    assert (manifest.snapshot_id, manifest.entry_count, manifest.digest) == ("5eed", 2, None)
    assert [tuple(each) for each in manifest.chunks] == [(7, 0, 899_000, 2**32 - 1), (8, 1, 120, 7)]


@pytest.mark.parametrize(("snapshot_id", "sequence"), [("5eed", 1), ("5eed", 2), ("other", 1)])
def test_entries_of_a_chunk(spark, snapshot_id, sequence) -> None:
    """Keys and values as stored; none of a chunk that says it belongs elsewhere."""
    rows = [(0, golden("chunk"), snapshot_id, sequence)]
    schema = "partition INT, value BINARY, snapshot_id STRING, sequence LONG"
    found = decode_entries(spark.createDataFrame(rows, schema)).collect()
    chunk = GOLDEN["chunk"].entry
    expected = entries_of(chunk) if (snapshot_id, sequence) == ("5eed", 1) else {}  # type: ignore[arg-type]
    assert {bytes(row.k): bytes(row.v) for row in found} == expected
