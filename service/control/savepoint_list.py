"""The savepoints of an app: as commands print them and HTTP shows them, and what may be asked."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.errors import RetryableError
from snapreplay.service.control.vocabulary import Count, Time, said


class SavepointPart(msgspec.Struct, frozen=True):
    """The state of one partition in a savepoint. What is null is not there."""

    partition: Count
    batch: Annotated[Count | None, said("Whose state it is.")] = None
    entries: Count | None = None
    digest: str | None = None
    positions: Annotated[dict[str, Count] | None, said("Input → next offset.")] = None
    kept_at: Time | None = None
    problem: Annotated[str | None, said("Why it cannot be used; null: it can be.")] = None


class SavepointShown(msgspec.Struct, frozen=True):
    """A savepoint, with a part for each partition."""

    app_id: str
    savepoint: Annotated[str, said("Its name.")]
    usable: Annotated[bool, said("Whether every part is there, by its increment and its manifest.")]
    by: str | None
    reason: str | None
    partitions: tuple[SavepointPart, ...]

    @property
    def problems(self) -> list[str]:
        """Why it cannot be used; empty: it can be."""
        return [f"partition {part.partition}: {part.problem}" for part in self.partitions if part.problem]


class SavepointList(msgspec.Struct, frozen=True, tag="savepoints"):
    """Savepoints, by name."""

    items: tuple[SavepointShown, ...] = ()


class SavepointsUnread(RetryableError):
    """The savepoints cannot be read now.

    Safe: Nothing was changed.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the savepoints cannot be read: {why}", hint="ask again; GET /readyz shows the state of the cluster"
        )
        self.why = why
