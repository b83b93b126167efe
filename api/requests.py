"""The paths and bodies that HTTP takes, as pydantic models. What it returns is declared in `service.control`."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

PARTITION_MAX = 2**31 - 1  # Kafka's partition numbers are int32
OFFSET_MAX = 2**53 - 1
"""JSON has no larger integer that every client reads exactly; no log is that long."""

PartitionNumber = Annotated[
    int, Field(ge=0, le=PARTITION_MAX, description="Number of a state partition.", examples=[0])
]


def _canonical(value: object) -> object:
    # int() also takes "+1", "1_0", " 1" and "1.0": one partition has one URL.
    if isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value):
        raise ValueError("a partition is a number, such as 0")
    return value


PathPartition = Annotated[
    PartitionNumber, BeforeValidator(_canonical), Path(description="Number of a state partition.")
]


def _whole(value: object) -> object:
    # JSON has one kind of number: 2.0 is an integer there, and some clients send it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Model(BaseModel):
    """No coercion and no unknown fields: `false` is not a partition, and a misspelt field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SnapshotRequest(Model):
    """The partitions to write a full snapshot of, and why."""

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
        Field(ge=0, le=OFFSET_MAX, description="Of its manifest in the snapshots topic."),
        BeforeValidator(_whole),
    ]
