"""The findings that an audit collects about one partition. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from snapreplay.app import names
from snapreplay.snapshots.plan import LogStarts
from snapreplay.snapshots.proof.records import Condition, Judged
from snapreplay.snapshots.proof.report import Violation

FINDINGS_MAX = 1000
"""Of each check and partition: a log that is wrong everywhere is as wrong with the first thousand."""


@dataclass(frozen=True)
class AuditedPartition:
    """The partition that is audited, and from where on its two logs are read.

    `kept`: where they begin. An audit of what came after a proof reads less than that.
    """

    app_id: str
    partition: int
    log_start: int
    snapshots_start: int
    kept: LogStarts

    @property
    def increments(self) -> str:
        return names.increments_topic(self.app_id)

    @property
    def snapshots(self) -> str:
        return names.snapshots_topic(self.app_id)


@dataclass
class Findings:
    """The findings about one partition, in the order in which they were found."""

    partition: int
    found: list[Violation] = field(default_factory=list)
    _by_check: Counter[str] = field(default_factory=Counter)

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
        elif record.condition is Condition.REFUSED:
            self.add("seal", topic, record.offset, record.problem)
