"""What the models of HTTP are made of: times, counts, partition numbers, and how strict a model is."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

PARTITION_MAX = 2**31 - 1  # Kafka's partition numbers are int32


def _from_unix(value: object) -> object:
    return datetime.fromtimestamp(value, UTC) if isinstance(value, float | int) else value


Time = Annotated[AwareDatetime, BeforeValidator(_from_unix)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
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


def one_of(*values: str) -> Any:
    """Documented as an enum, but not enforced: a new value must never make a status unreadable."""
    return Field(json_schema_extra={"enum": list(values)})


RestoreMode = Annotated[str, one_of("changes", "replay")]
Warm = Annotated[str, one_of("merged", "dropped", "kept")]


class Model(BaseModel):
    """No coercion and no unknown fields: `false` is not a partition, and a misspelt field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, from_attributes=True)
