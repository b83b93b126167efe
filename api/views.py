"""Converts what the service publishes to what HTTP shows, where that is more than reading attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import Response

from snapreplay.api import operation_schemas, problems, schemas
from snapreplay.service.control.protocol import Check, Operation, ServiceFacts
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.control.status import RestoreStatus as Recovery
from snapreplay.service.core.phase import Phase

ACCEPTED: dict[str, Any] = {
    "description": "Accepted: follow the operation.",
    "headers": {
        "Location": {"description": "Path of the operation.", "schema": {"type": "string"}},
        **problems.RETRY_AFTER,
    },
}
"""The documented 202 of a route that answers with `accepted`."""


def accepted(operation: Operation, response: Response) -> operation_schemas.Operation:
    """Return the operation; the headers of `response` say where to follow it."""
    response.headers["Location"] = f"/api/v1/operations/{operation.id}"
    response.headers["Retry-After"] = "1"
    return operation_schemas.Operation.model_validate(operation)


def restore_status(
    facts: ServiceFacts, partitions: Sequence[PartitionStatus]
) -> schemas.RestoreStatus:
    return schemas.RestoreStatus(
        app_id=facts.app_id,
        instance_id=facts.instance_id,
        waiting_for=facts.waiting_for,
        summary=_summary([each for each in partitions if each.phase is not Phase.CLOSED]),
        partitions=tuple(_restore(each) for each in partitions),
    )


def _summary(held: Sequence[PartitionStatus]) -> schemas.RestoreSummary:
    percents = [each.restored_percent or 0.0 for each in held]
    return schemas.RestoreSummary(
        partitions_by_phase=dict(Counter(each.phase.value for each in held)),
        all_live=bool(held) and all(each.phase is Phase.LIVE for each in held),
        percent=sum(percents) / len(percents) if percents else None,
    )


def _restore(status: PartitionStatus) -> schemas.Restore:
    recovery = status.restore or Recovery(attempt=0, started_at=0.0)
    return schemas.Restore.model_validate(
        {
            "partition": status.partition,
            "phase": status.phase,
            "owner_epoch": status.owner_epoch,
            "percent": status.restored_percent,
            "attempts": recovery.attempt,
            "started_at": recovery.started_at if status.restore else None,
            "finished_at": recovery.finished_at,
            "warm": recovery.warm,
            "mode": recovery.mode,
            "snapshot": recovery.snapshot,
            "fallback": _fallback(recovery),
            "progress": recovery.progress,
            "waiting_for": recovery.waiting_for,
            "ownership_doubt": status.ownership_doubt,
            "seconds_per_phase": recovery.seconds_per_phase,
            "entries": recovery.entries,
            "records_replayed": recovery.records_replayed,
            "proof": status.proof,
            "error": status.error,
        }
    )


def _fallback(recovery: Recovery) -> schemas.Fallback | None:
    if recovery.fallback_from is None and not recovery.fallback_reason:
        return None
    return schemas.Fallback(
        from_snapshot_id=recovery.fallback_from, reason=recovery.fallback_reason or ""
    )


def partition(status: PartitionStatus, now: float) -> schemas.Partition:
    """`now` in Unix seconds. The age is 0 if the clock was set back."""
    return schemas.Partition.model_validate(
        {
            **{
                name: getattr(status, name)
                for name in status.__struct_fields__
                if name != "restore"
            },
            "unaudited_batches": status.unaudited_batches,
            "stream_time_lag_seconds": _stream_time_lag(status.stream_time_ms, now),
            "progress_age_seconds": max(0.0, now - status.updated_at),
        }
    )


def _stream_time_lag(stream_time_ms: int | None, now: float) -> float | None:
    return None if stream_time_ms is None else now - stream_time_ms / 1000


def probe(checks: Sequence[Check]) -> schemas.Probe:
    """`ok` if every check is, or if there is none."""
    return schemas.Probe(
        status="ok" if all(check.ok for check in checks) else "failing",
        checks=tuple(schemas.Check.model_validate(check) for check in checks),
    )
