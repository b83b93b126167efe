"""What HTTP takes and returns of operations, as pydantic models: the other half of `schemas`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from snapreplay.api.schemas import Model, PartitionNumber, Time, one_of


def _whole(value: object) -> object:
    # JSON has one kind of number: 2.0 is an integer there, and some clients send it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


class SnapshotRequest(Model):
    """Which partitions to write a full snapshot of, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"partitions": [0, 2], "reason": "before deploy 42"}]}
    )

    partitions: Annotated[
        list[Annotated[PartitionNumber, BeforeValidator(_whole)]] | None,
        Field(
            min_length=1,
            max_length=10_000,
            description="If left out: all live partitions of this process.",
        ),
    ] = None
    reason: Annotated[
        str, Field(max_length=500, description="Kept with the operation and the snapshot.")
    ] = ""


class Proposal(Model):
    """A snapshot that a job has written into the snapshots topic."""

    manifest_offset: Annotated[
        int,
        Field(ge=0, le=2**63 - 1, description="Of its manifest in the snapshots topic."),
        BeforeValidator(_whole),
    ]


class OperationPart(Model):
    """One partition's share of an operation."""

    partition: PartitionNumber
    state: Annotated[str, one_of("pending", "running", "succeeded", "skipped", "failed")]
    snapshot_id: str | None
    detail: str


class Operation(Model):
    """An asynchronous request and what became of it."""

    id: Annotated[str, Field(description="Sorts by time of creation.")]
    kind: Annotated[str, one_of("snapshot", "retry", "adopt")]
    state: Annotated[str, one_of("running", "succeeded", "failed")]
    reason: str
    parts: tuple[OperationPart, ...]
    created_at: Time
    finished_at: Time | None


class Operations(Model):
    """The last 1,000 at most, newest first."""

    items: tuple[Operation, ...]
