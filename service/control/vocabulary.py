"""The words that all of what a service says of itself is made of, with their descriptions for OpenAPI. Times are aware
datetimes in UTC, RFC 3339 in JSON; durations are seconds, sizes bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec


def said(description: str | None = None, **schema: Any) -> msgspec.Meta:
    """Describe a field for OpenAPI. Nothing of `schema` is enforced: a new value must never make a status
    unreadable."""
    return msgspec.Meta(description=description, extra_json_schema=schema or None)


def one_of(*values: str) -> msgspec.Meta:
    """Document a field as an enum."""
    return said(enum=list(values))


Count = Annotated[int, said(minimum=0)]
Seconds = Annotated[float, said(minimum=0)]
Percent = Annotated[float, said(minimum=0, maximum=100)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]
LONG_AGO = datetime.fromtimestamp(0, UTC)
