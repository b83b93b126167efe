"""The report of an audit, and the findings about one partition that are collected for it. Pure."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from snapreplay.app import names
from snapreplay.snapshots.proof.records import Condition, Judged


class Level(StrEnum):
    """The audit level; each includes the previous one."""

    INTEGRITY = "integrity"  # what was written is there, whole, in one chain
    CHANGES = "changes"  # every batch's digest and every snapshot's, from the recorded changes
    REPLAY = "replay"  # what the app's handlers make of the input is what was recorded


class Violation(msgspec.Struct, frozen=True, order=True):
    """Something that must not be. `offset` is that of the record to look at, or -1 if that is missing."""

    check: str
    topic: str
    partition: int
    offset: int
    detail: str


FINDINGS_MAX = 1000
"""Of each check and partition: a log that is wrong everywhere is as wrong with the first thousand."""


class AuditedPartition(msgspec.Struct, frozen=True):
    """The partition that is audited, and from where on its two logs are read."""

    app_id: str
    partition: int
    log_start: int
    snapshots_start: int

    @property
    def increments(self) -> str:
        return names.increments_topic(self.app_id)

    @property
    def snapshots(self) -> str:
        return names.snapshots_topic(self.app_id)


class Findings(msgspec.Struct):
    """The findings about one partition, in the order in which they were found."""

    partition: int
    found: list[Violation] = msgspec.field(default_factory=list)
    _by_check: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, check: str, topic: str, offset: int, detail: str) -> None:
        """Add a finding; `offset`: of the record to look at; -1 when it is missing and has none."""
        self._by_check[check] += 1
        if self._by_check[check] <= FINDINGS_MAX:
            self.found.append(Violation(check, topic, self.partition, offset, detail))

    def of_condition(self, topic: str, record: Judged) -> None:
        """Add a finding for a record that cannot be read."""
        if record.condition is Condition.DAMAGED:
            says = "magic, length or crc32 is not what was written"
            self.add("envelope", topic, record.offset, says)
        elif record.condition is Condition.UNKNOWN:
            says = record.problem or "a format version that this build does not know"
            self.add("format", topic, record.offset, says)


class RecordedDecision(msgspec.Struct, frozen=True):
    """A decision of an operator, or of an owner itself, as the increment at `offset` records it."""

    partition: int
    offset: int
    finding: str
    decided: str
    reason: str
    by: str


class AuditReport(msgspec.Struct, frozen=True):
    """An audit's verdict over the two topics as they were at one moment.

    Attributes:
        checked: name of what was checked → how many.
        findings: sorted; at most 1,000 of each check and partition; empty if all is well.
        notes: name → count of what is worth knowing but not wrong (orphans, trimmed snapshots, foreign
            records).
        decisions: what operators accepted and owners decided, by partition and offset, as far as the log reaches back.
        level: at which it ran.
    """

    app_id: str
    partition_count: int
    checked: dict[str, int]
    findings: list[Violation]
    notes: dict[str, int]
    seconds: float
    decisions: list[RecordedDecision] = []
    level: Level = Level.INTEGRITY

    @property
    def exit_code(self) -> int:
        """The exit code: 0 fine, 1 findings. (2 is for an audit that could not run: it raised.)"""
        return 1 if self.findings else 0
