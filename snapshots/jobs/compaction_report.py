"""The report of a compaction. Without Spark in it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """The outcome for a partition."""

    PROPOSED = "proposed"
    DRAFTED = "drafted"  # an upgrade, for the owner that starts with it
    ADOPTED = "adopted"
    REJECTED = "rejected"
    WAITING = "waiting"  # proposed; the owner has not answered within the time given
    SUPERSEDED = "superseded"  # a newer snapshot exists
    NOTHING_TO_DO = "nothing to do"
    NOT_POSSIBLE = "not possible"


FINE = {Outcome.PROPOSED, Outcome.DRAFTED, Outcome.ADOPTED, Outcome.SUPERSEDED, Outcome.NOTHING_TO_DO}
"""Nothing is left to do for anybody."""


class PartitionResult(msgspec.Struct, frozen=True):
    """The result for a partition.

    Attributes:
        batch, increment_offset: of which the proposed snapshot is; -1 without one.
        manifest_offset: of the proposal in the snapshots topic; -1 if none was written.
        batches: since the snapshot (`base`, None: the genesis) that it was made from.
        bridged: offsets of increments on the way that cannot be read. The digest of a later batch shows that nothing is
            missing.
        reason: why there is no proposal, or why it was not adopted.
    """

    partition: int
    outcome: Outcome
    batch: int = -1
    increment_offset: int = -1
    snapshot_id: str = ""
    manifest_offset: int = -1
    base: str | None = None
    batches: int = 0
    by_replay: bool = False
    entries: int = 0
    chunks: int = 0
    size_bytes: int = 0
    bridged: list[int] = []
    reason: str = ""
    hint: str = ""


class CompactionReport(msgspec.Struct, frozen=True):
    """The report on all partitions, by number."""

    app_id: str
    partitions: list[PartitionResult]
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code, 0: every partition has a proposal or needs none. 1: some do not. (2: it could not run, and
        raised.)"""
        return 0 if all(each.outcome in FINE for each in self.partitions) else 1
