"""Examples of the answers in docs/openapi.json, by schema name.

A test validates each against its schema. In all of them partition 0 is live and 1 is loading.
"""

from __future__ import annotations

from typing import Any

_DIGEST = "104729:8f14e45fceea167a:45c48cce2e2d7fbd"

OPERATION: dict[str, Any] = {
    "id": "019aa3c1-6a52-7d11-8f3e-0d4b6c1f2a90",
    "kind": "snapshot",
    "state": "running",
    "reason": "before deploy 42",
    "parts": [{"partition": 0, "state": "running", "snapshot_id": None, "detail": ""}],
    "created_at": "2026-11-21T09:30:00Z",
    "finished_at": None,
}
_SNAPSHOT: dict[str, Any] = {
    "partition": 0,
    "snapshot_id": "5c1dd0a4f1b24b1e",
    "state": "pointed",
    "reason": "interval",
    "batch": 4012,
    "started_at": "2026-11-21T09:25:00Z",
    "finished_at": "2026-11-21T09:25:00.412000Z",
    "entries": 104_729,
    "chunks": 6,
    "size_bytes": 4_718_592,
    "manifest_offset": 77,
    "digest": _DIGEST,
    "error": None,
}
_USED: dict[str, Any] = {
    "snapshot_id": "5c1dd0a4f1b24b1e",
    "batch": 4012,
    "manifest_offset": 77,
    "entries": 104_729,
    "size_bytes": 4_718_592,
    "created_at": "2026-11-21T09:25:00Z",
    "chunks": 6,
}
_RECOVERY: dict[str, Any] = {
    "attempts": 1,
    "started_at": "2026-11-21T09:29:50Z",
    "finished_at": "2026-11-21T09:29:50.310000Z",
    "warm": None,
    "mode": "changes",
    "snapshot": _USED,
    "fallback_from": None,
    "fallback_reason": None,
    "progress": None,
    "waiting_for": "",
    "seconds_per_phase": {
        "fencing": 0.02,
        "claiming": 0.004,
        "locating": 0.03,
        "loading": 0.25,
        "advancing": 0.006,
    },
    "entries": 104_750,
    "records_replayed": 0,
    "proof": {"recorded": _DIGEST, "computed": _DIGEST, "equal": True, "batches_compared": 107},
}
_PARTITION: dict[str, Any] = {
    "partition": 0,
    "phase": "live",
    "owner_epoch": 9120,
    "batch": 4120,
    "inputs": [{"topic": "payments", "position": 880_412, "end_offset": 880_500, "lag": 88}],
    "state_entries": 104_801,
    "state_bytes": 9_437_184,
    "state_largest_entry_bytes": 2_310,
    "stores": [
        {
            "name": "_timers",
            "entries": 311,
            "size_bytes": 12_402,
            "largest_entry_bytes": 41,
            "next_due_ms": 1_795_253_160_000,
        },
        {
            "name": "default",
            "entries": 104_490,
            "size_bytes": 9_424_782,
            "largest_entry_bytes": 2_310,
            "next_due_ms": None,
        },
    ],
    "records_total": 21_340,
    "skipped_total": 0,
    "stream_time_ms": 1_795_253_100_412,
    "stream_time_lag_seconds": 0.382,
    "timers_pending": 311,
    "next_due_ms": 1_795_253_160_000,
    "timers_total": 1_204,
    "expired_total": 0,
    "digest": _DIGEST,
    "values_read": {"read": 104_750, "entries": 104_750, "all_read": True},
    "restore": _RECOVERY,
    "snapshot": _SNAPSHOT,
    "last_pointed_snapshot_at": "2026-11-21T09:25:00.412000Z",
    "recoverable": True,
    "unrecoverable_reason": "",
    "ownership_doubt": "",
    "blocked_by_open_transaction": [],
    "decisions": [
        {
            "offset": 2719,
            "batch": 1209,
            "finding": "input-gap-3f9a12bc",
            "problem": "InputTrimmed: input payments-0: the next record to process is at offset 120,"
            " but the log begins at 130: 10 offsets are gone",
            "decided": "the state stays that of batch 1208; payments: goes on at offset 130;"
            " offsets 120 to 130 are never processed",
            "reason": "known outage, refunded by hand",
            "by": "ada@host-a",
            "at": "2026-11-20T18:02:11.004000Z",
        }
    ],
    "rejected_proposals": [
        {
            "manifest_offset": 61,
            "reason": "superseded",
            "detail": "it is of batch 3970, and snapshot 5c1dd0a4f1b24b1e is of batch 4012",
            "at": "2026-11-21T09:25:07.120000Z",
        }
    ],
    "audited": [
        {
            "level": "changes",
            "batch": 4012,
            "offset": 9004,
            "digest": _DIGEST,
            "snapshot_id": "5c1dd0a4f1b24b1e",
            "app_version": "7+code:0a1b2c3d",
            "at": "2026-11-21T09:26:00Z",
        }
    ],
    "unaudited_batches": 108,
    "error": None,
    "updated_at": "2026-11-21T09:30:00Z",
    "progress_age_seconds": 0.004,
}
_RESTORED: dict[str, Any] = {
    **_RECOVERY,
    "partition": 0,
    "phase": "live",
    "owner_epoch": 9120,
    "percent": 100.0,
    "ownership_doubt": "",
    "error": None,
}
_RESTORING: dict[str, Any] = {
    **_RESTORED,
    "partition": 1,
    "phase": "loading",
    "owner_epoch": 9044,
    "percent": 12.5,
    "finished_at": None,
    "progress": {
        "unit": "bytes",
        "from": 0,
        "current": 1_048_576,
        "target": 4_194_304,
        "remaining": 3_145_728,
        "percent": 25.0,
        "rate_per_second": 20_971_520.0,
        "eta_seconds": 0.15,
    },
    "seconds_per_phase": {"fencing": 0.02, "claiming": 0.004, "locating": 0.03},
    "entries": 26_182,
    "proof": None,
}
_FACTS: dict[str, Any] = {
    "app_id": "ledger",
    "app_version": "7",
    "version": "0.1.0",
    "instance_id": "ledger-0",
    "process_id": "3f0c9f3e5d0e4b7a",
    "host": "ledger-0",
    "started_at": "2026-11-21T09:29:49Z",
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
    "partition_count": 2,
    "waiting_for": "",
}

BY_SCHEMA: dict[str, dict[str, Any]] = {
    "ServiceFacts": _FACTS,
    "Operation": OPERATION,
    "Operations": {"items": [OPERATION]},
    "Partition": _PARTITION,
    "Partitions": {"items": [_PARTITION]},
    "RestoreStatus": {
        "app_id": "ledger",
        "instance_id": "ledger-0",
        "waiting_for": "",
        "summary": {
            "partitions_by_phase": {"live": 1, "loading": 1},
            "all_live": False,
            "percent": 56.25,
        },
        "partitions": [_RESTORED, _RESTORING],
    },
    "Snapshots": {"items": [_SNAPSHOT]},
}
PROBES: dict[str, dict[str, Any]] = {
    "200": {
        "status": "ok",
        "checks": [{"name": "runner loop", "ok": True, "detail": "last turn 0.3 s ago"}],
    },
    "503": {
        "status": "failing",
        "checks": [{"name": "partition 1", "ok": False, "detail": "loading"}],
    },
}
