"""The report of an audit. Pure."""

from __future__ import annotations

import msgspec

from snapreplay.snapshots.format.records import OWN_KIND
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.proven import Proof


class Violation(msgspec.Struct, frozen=True, order=True):
    """Something that must not be. `offset` is that of the record to look at, or -1 if that is missing."""

    check: str
    topic: str
    partition: int
    offset: int
    detail: str


class RecordedDecision(msgspec.Struct, frozen=True):
    """A finding that an operator accepted, or what an owner decided because its memory held the only copy of the
    state, as the increment at `offset` records it.
    """

    partition: int
    offset: int
    finding: str
    decided: str
    reason: str
    by: str

    @property
    def by_owner(self) -> bool:
        return self.finding.startswith(f"{OWN_KIND}-")


class SnapshotPlace(msgspec.Struct, frozen=True):
    """A full snapshot that is pointed to. `is_there`: nothing of what a restore from it needs was trimmed."""

    snapshot_id: str
    batch: int
    increment_offset: int
    first_chunk_offset: int
    manifest_offset: int
    is_there: bool


class Stretch(msgspec.Struct, frozen=True):
    """Batches between two snapshots, and what their replay gave: "same", "different", "no input"."""

    first_offset: int
    last_offset: int
    replayed: str


class AuditedChain(msgspec.Struct, frozen=True):
    """A partition as far as it was audited. Offsets are those of the increments topic unless they say otherwise.

    Attributes:
        log_start, log_end: what the topic holds, half-open.
        audited_from: the first offset that was read; above `log_start` where an earlier proof counted.
        first_batch, last_batch: of what was read; None without an increment.
        claims: the newest 200. `claim_count` is of all that were read.
        earlier: proofs that were recorded before.
        audited_all_because: why an audit since the last proof began at the start of the log; else empty.
        proven: what this audit proves; None with a finding in the partition.
        recorded: whether that was recorded.
    """

    partition: int
    log_start: int
    log_end: int
    audited_from: int
    first_batch: int | None = None
    last_batch: int | None = None
    last_offset: int | None = None
    claims: tuple[int, ...] = ()
    claim_count: int = 0
    snapshots: tuple[SnapshotPlace, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    earlier: tuple[Proof, ...] = ()
    audited_all_because: str = ""
    proven: Proof | None = None
    recorded: bool = False


class AuditReport(msgspec.Struct, frozen=True):
    """An audit's verdict over the two topics as they were at one moment.

    Attributes:
        checked: name of what was checked → how many.
        findings: sorted; at most 1,000 of each check and partition; empty if all is well.
        notes: name → count of what is worth knowing but not wrong (orphans, trimmed snapshots, foreign
            records).
        decisions: what operators accepted and owners decided, by partition and offset, as far as the log reaches back.
        level: at which it ran.
        chains: of each partition, by number.
        since_last: only what came after the last proof was audited, and the new proof was to be recorded.
        not_recorded: why it was not; empty if it was, or was not to be.
        audited_at_ms: when the audit began, in milliseconds since the epoch.
    """

    app_id: str
    partition_count: int
    checked: dict[str, int]
    findings: list[Violation]
    notes: dict[str, int]
    seconds: float
    decisions: list[RecordedDecision] = []
    level: Level = Level.INTEGRITY
    chains: list[AuditedChain] = []
    since_last: bool = False
    not_recorded: str = ""
    audited_at_ms: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code: 0 fine, 1 findings. (2 is for an audit that could not run: it raised.)"""
        return 1 if self.findings else 0
