"""Writes the golden records of a new format version: bytes, and beside them what they mean.

    python -m tests.golden.make

A file that exists is never written again: released bytes are what readers must go on reading.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from snapreplay.app.ranges import Anchor, InputRange, PositionAnchor, SkippedRange
from snapreplay.snapshots.format.envelope import FORMAT_VERSION, encode
from snapreplay.snapshots.format.records import (
    ChangesRecord,
    ChangesRef,
    Chunk,
    ChunkRef,
    Claim,
    Genesis,
    Increment,
    LogEntry,
    Manifest,
    Origin,
    Pointer,
)
from snapreplay.snapshots.format.seal import Seals
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import Digest

_ORIGIN = Origin("ledger", "1.4.0", 2, "cpython-3.11.7 x86_64 msgspec-0.22.0")
_GENESIS = Genesis("MkU3OEVBNTcwNTJENDM2Qg", 4, {"payments": 0, "refunds": 12})
_DIGEST = Digest(2, 2**64 - 1, 2**63)
_NOW_MS = 1_795_000_000_000
SEALS = Seals({"2026-11": bytes(range(32)), "2025-11": bytes(32)}, source="keys")


@dataclass(frozen=True)
class Golden:
    """One record, and whether it is written compressed, and sealed with `SEALS` for partition 2."""

    entry: LogEntry
    compress: bool = False
    sealed: bool = False

    @property
    def value(self) -> bytes:
        value = encode(self.entry, compress=self.compress)
        return SEALS.put_on(value, 2) if self.sealed else value


GOLDEN: dict[str, Golden] = {
    "claim": Golden(
        Claim(
            claim_id="0b5e8a6c",
            app_id="ledger",
            cluster_id=_GENESIS.cluster_id,
            process_id="77f1c0de",
            instance_id="ledger-a",
            host="kafka-app-1",
            pid=4711,
            started_at_ms=_NOW_MS,
        )
    ),
    "changes": Golden(
        ChangesRecord(3, 0, {"default": {b"\xa5alice": b"\x81\xa7balance\x07", b"\xa3bob": None}})
    ),
    "changes_of_stores": Golden(
        ChangesRecord(3, 0, {"accounts": {b"\xa3bob": b"\x07"}, "default": {b"\xa3bob": None}})
    ),
    "changes_compressed": Golden(
        ChangesRecord(
            3, 1, {"default": {b"\xa5%05d" % n: b"\x81\xa7balance\xcd%02d" % n for n in range(300)}}
        ),
        compress=True,
    ),
    "increment": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=40,
            batch=3,
            previous_offset=42,
            ranges=[InputRange("payments", 0, 5, 4), InputRange("refunds", 12, 13, 1)],
            positions={"payments": 5, "refunds": 13},
            record_count=5,
            skipped=[SkippedRange("payments", 3, 4)],
            anchors={"payments": Anchor(4, _NOW_MS - 10, 2**64 - 2)},
            pointers=[Pointer("5eed", 9, 7, 2, 42, _DIGEST), Pointer("5eec", 6, 6, 1, 3, None)],
            changes=ChangesRef(2, 302, 2**32 - 1),
            outputs={"balances": 5},
            stream_time_ms=_NOW_MS - 10,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            topic_ids={
                "payments": "Yl9YQ2lvT0lPZm9zTDVrZw",
                "ledger-increments": "b3BlcmF0aW9uc2xlZGdlcg",
            },
            outputs_xxh64={"balances": 2**64 - 5},
            fallback_from="5eee",
            decision={"finding": "input_gap", "reason": "known outage"},
        )
    ),
    "increment_decided": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=60,
            batch=9,
            previous_offset=60,
            ranges=[],
            positions={"payments": 130, "refunds": 13},
            record_count=0,
            skipped=[],
            anchors={"refunds": Anchor(12, _NOW_MS - 10, 7)},
            pointers=[Pointer("5eef", 30, 28, 8, 60, _DIGEST)],
            changes=None,
            outputs={},
            stream_time_ms=_NOW_MS - 10,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            decision={
                "finding": "input-gap-3f9a12bc",
                "problem": "InputTrimmed: input payments-0: 10 offsets are gone",
                "decided": "payments: goes on at offset 130",
                "reason": "known outage",
                "by": "ada@host-a",
            },
            last_decision_offset=21,
        )
    ),
    "increment_of_stores": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=60,
            batch=10,
            previous_offset=62,
            ranges=[InputRange("payments", 130, 131, 1)],
            positions={"payments": 131, "refunds": 13},
            record_count=1,
            skipped=[],
            anchors={"payments": Anchor(130, _NOW_MS, 7)},
            pointers=[],
            changes=ChangesRef(1, 2, 2**32 - 1),
            outputs={},
            stream_time_ms=_NOW_MS,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            store_digests={"accounts": _DIGEST, "default": Digest(1, 2, 3)},
            cleared=["offers"],
        )
    ),
    "increment_of_timers": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=60,
            batch=11,
            previous_offset=66,
            ranges=[],
            positions={"payments": 131, "refunds": 13},
            record_count=0,
            skipped=[],
            anchors={"payments": Anchor(130, _NOW_MS, 7)},
            pointers=[],
            changes=ChangesRef(1, 2, 2**32 - 1),
            outputs={"ledger-dead-letters": 1},
            stream_time_ms=_NOW_MS + 5,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            fired_count=3,
            skipped_timers=[1],
            begun_input="refunds",
        )
    ),
    "increment_of_fields": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=60,
            batch=12,
            previous_offset=68,
            ranges=[InputRange("payments", 131, 132, 1)],
            positions={"payments": 132, "refunds": 13},
            record_count=1,
            skipped=[],
            anchors={"payments": Anchor(131, _NOW_MS, 7)},
            pointers=[],
            changes=ChangesRef(1, 2, 2**32 - 1),
            outputs={},
            stream_time_ms=_NOW_MS + 5,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            fields={"default": ["-email", "address", "address.zip", "lines", "lines[].sku"]},
        )
    ),
    "increment_anchored": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=60,
            batch=12,
            previous_offset=69,
            ranges=[InputRange("payments", 131, 433, 1)],
            positions={"payments": 433, "refunds": 13},
            record_count=1,
            skipped=[],
            anchors={"payments": Anchor(131, _NOW_MS, 8)},
            pointers=[],
            changes=ChangesRef(1, 2, 2**32 - 1),
            outputs={"balances": 1},
            stream_time_ms=_NOW_MS,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
            position_anchors={
                "payments": PositionAnchor(6, 2**32 - 2),
                "refunds": PositionAnchor(0, 9),
            },
        )
    ),
    "chunk": Golden(
        Chunk(
            snapshot_id="5eed",
            sequence=1,
            store="default",
            slices=[
                ShardSlice(17, 2**64 - 3, 1, {b"\xa5alice": b"\x81\xa7balance\x07"}),
                ShardSlice(1023, 0, 0, {}),
            ],
        )
    ),
    "manifest": Golden(
        Manifest(
            origin=_ORIGIN,
            snapshot_id="5eed",
            owner_epoch=40,
            batch=2,
            increment_offset=42,
            positions={"payments": 0, "refunds": 12},
            chunks=[ChunkRef(7, 0, 899_000, 2**32 - 1), ChunkRef(8, 1, 120, 7)],
            entry_count=2,
            digest=None,
            entries_digest=_DIGEST,
            stream_time_ms=-1,
            shard_count=1024,
            created_at_ms=_NOW_MS,
            topic_ids={
                "payments": "Yl9YQ2lvT0lPZm9zTDVrZw",
                "ledger-increments": "b3BlcmF0aW9uc2xlZGdlcg",
            },
            genesis=_GENESIS,
        )
    ),
    "manifest_sealed": Golden(
        Manifest(
            origin=_ORIGIN,
            snapshot_id="5ef1",
            owner_epoch=40,
            batch=2,
            increment_offset=42,
            positions={"payments": 0, "refunds": 12},
            chunks=[ChunkRef(7, 0, 899_000, 2**32 - 1, bytes(range(32)))],
            entry_count=2,
            digest=_DIGEST,
            entries_digest=_DIGEST,
            stream_time_ms=-1,
            shard_count=1024,
            created_at_ms=_NOW_MS,
            genesis=_GENESIS,
        ),
        sealed=True,
    ),
    "increment_sealed": Golden(
        Increment(
            origin=_ORIGIN,
            owner_epoch=40,
            batch=3,
            previous_offset=42,
            ranges=[InputRange("payments", 0, 5, 5)],
            positions={"payments": 5, "refunds": 12},
            record_count=5,
            skipped=[],
            anchors={},
            pointers=[Pointer("5ef1", 9, 7, 2, 42, _DIGEST)],
            changes=ChangesRef(2, 302, 2**32 - 1, bytes(range(32, 64))),
            outputs={},
            stream_time_ms=_NOW_MS - 10,
            digest=_DIGEST,
            genesis=_GENESIS,
            written_at_ms=_NOW_MS,
        ),
        sealed=True,
    ),
    "manifest_proposed": Golden(
        Manifest(
            origin=_ORIGIN,
            snapshot_id="5ef0",
            owner_epoch=40,
            batch=2,
            increment_offset=42,
            positions={"payments": 0, "refunds": 12},
            chunks=[ChunkRef(7, 0, 899_000, 2**32 - 1), ChunkRef(8, 1, 120, 7)],
            entry_count=2,
            digest=_DIGEST,
            entries_digest=_DIGEST,
            stream_time_ms=-1,
            shard_count=1024,
            created_at_ms=_NOW_MS,
            topic_ids={
                "payments": "Yl9YQ2lvT0lPZm9zTDVrZw",
                "ledger-increments": "b3BlcmF0aW9uc2xlZGdlcg",
            },
            genesis=_GENESIS,
            proposed_by="compact@spark-worker-1/4712",
        )
    ),
}


def readable(value: Any) -> Any:
    """Convert a value to what JSON can hold: bytes as "0x…", structures by their field names."""
    match value:
        case msgspec.Struct():
            named = {name: getattr(value, name) for name in value.__struct_fields__}
            return readable(named)
        case dict():
            return {readable(key): readable(item) for key, item in value.items()}
        case list():
            return [readable(item) for item in value]
        case bytes():
            return "0x" + value.hex()
        case _:
            return value


def main() -> int:
    """Write what is missing. Returns 0."""
    folder = Path(__file__).parent / f"v{FORMAT_VERSION}"
    folder.mkdir(exist_ok=True)
    for name, golden in GOLDEN.items():
        path = folder / f"{name}.bin"
        if path.exists():
            continue
        path.write_bytes(golden.value)
        meaning = json.dumps(readable(golden.entry), indent=1)
        path.with_suffix(".json").write_text(meaning + "\n")
        sys.stdout.write(f"wrote {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
