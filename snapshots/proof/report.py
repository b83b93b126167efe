"""What an audit found. Pure."""

from __future__ import annotations

import msgspec

from snapreplay.snapshots.format.records import OWN_KIND


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


class AuditReport(msgspec.Struct, frozen=True):
    """An audit's verdict over the two topics as they were at one moment.

    Attributes:
        checked: name of what was checked → how many.
        findings: sorted; at most 1,000 of each check and partition; empty if all is well.
        notes: name → count of what is worth knowing but not wrong (orphans, trimmed snapshots, foreign
            records).
        decisions: what operators accepted and owners decided, by partition and offset, as far as the log reaches back.
    """

    app_id: str
    partition_count: int
    checked: dict[str, int]
    findings: list[Violation]
    notes: dict[str, int]
    seconds: float
    decisions: list[RecordedDecision] = []

    @property
    def exit_code(self) -> int:
        """0 fine, 1 findings. (2 is for an audit that could not run: it raised.)"""
        return 1 if self.findings else 0
