"""The history of a partition, as its increments topic has it: who owned it, which snapshots were pointed to, and what
was decided about its state."""

from __future__ import annotations

from typing import Annotated

import msgspec

from snapreplay.service.control.status import Decision
from snapreplay.service.control.vocabulary import Count, Time, said

HISTORY_SECONDS = 5.0
"""So long the log is read for one answer."""
OWNERSHIPS_MAX = 100
SNAPSHOTS_MAX = 100


class Ownership(msgspec.Struct, frozen=True):
    """One claim of a partition, and the last batch that its owner committed; null: it committed none."""

    owner_epoch: Annotated[Count, said("Offset of the claim in the increments topic.")]
    process_id: Annotated[str, said("Empty, as the next two: the claim was trimmed.")]
    instance_id: str
    host: str
    claimed_at: Annotated[Time | None, said("By the clock of its host; null: the claim was trimmed.")]
    last_batch: Count | None = None
    last_commit_at: Time | None = None


class PointedSnapshot(msgspec.Struct, frozen=True):
    """A full snapshot that an increment points or pointed to."""

    snapshot_id: str
    batch: Annotated[Count, said("Whose state it has.")]
    manifest_offset: Count
    increment_offset: Annotated[Count, said("Of the increment of that batch: a recovery goes on behind it.")]
    batch_at: Annotated[Time | None, said("When that batch was committed; null: its increment was trimmed.")]
    is_kept: Annotated[bool, said("Whether the last increment still points to it.")]


class PartitionHistory(msgspec.Struct, frozen=True, tag="partition-history"):
    """The last 100 ownerships, snapshots and decisions of a partition, newest first, as far as its log reaches back."""

    partition: Count
    ownerships: tuple[Ownership, ...]
    snapshots: tuple[PointedSnapshot, ...]
    is_whole: Annotated[
        bool,
        said(
            "Whether this is all that the log has. False if the time limit or the number of ownerships ended the"
            " reading."
        ),
    ]
    decisions: tuple[Decision, ...] = ()
