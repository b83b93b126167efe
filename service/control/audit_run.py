"""An audit of one partition by the process that owns it: what is asked for, and what became of it. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from snapreplay.service.control.vocabulary import Count, Time, one_of, said
from snapreplay.snapshots.proof.level import Level

FINDINGS_MAX = 5
"""Of one partition, as they are shown. A process tells its last thousand operations again and again."""


class AuditState(StrEnum):
    """The progress and the verdict of an audit."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it has findings
    GIVEN_UP = "given_up"  # it could not run, or its proof could not be recorded


class Finding(msgspec.Struct, frozen=True):
    """Something in the log that must not be."""

    check: Annotated[str, said("Of the audit.", examples=["envelope"])]
    topic: str
    partition: Count
    offset: Annotated[int, said("Of the record to look at; -1: it is missing.")]
    detail: str

    def __str__(self) -> str:
        return f"{self.check} {self.topic}-{self.partition} offset {self.offset}: {self.detail}"


class AuditRun(msgspec.Struct, frozen=True):
    """An audit of a live partition by a process beside its owner, of what came after the last proof."""

    state: Annotated[str, one_of(*AuditState)]
    level: Annotated[str, one_of(*Level)]
    started_at: Time
    finished_at: Time | None = None
    first_batch: Annotated[Count | None, said("The first one that was read.")] = None
    batch: Annotated[Count | None, said("The last one that is proven.")] = None
    finding_count: Count = 0
    findings: Annotated[tuple[Finding, ...], said(f"At most {FINDINGS_MAX}.")] = ()
    detail: Annotated[str, said("What was found, or why it was given up.")] = ""


class AuditOrder(msgspec.Struct, frozen=True):
    """The order to a process that audits. `settings`: those that were given, secrets included. `app`: a name by which
    it can be imported, with the version that it must have; empty: no code is run."""

    app_id: str
    partition: int
    level: Level
    settings: dict[str, Any]
    app: str = ""
    app_version: str = ""


class AuditAnswer(msgspec.Struct, frozen=True):
    """The answer of that process.

    Attributes:
        finding_count: of all; `findings` are the first ones.
        proven_batch, proven_level: None with a finding, and where no batch could be proven.
        without_input: how many stretches could not be replayed, because their input was trimmed.
        not_recorded: why the proof was not; empty if it was.
        problem: why it could not run; empty if it did.
        defect: a traceback.
    """

    first_batch: int | None = None
    proven_batch: int | None = None
    proven_level: Level | None = None
    without_input: int = 0
    finding_count: int = 0
    findings: tuple[Finding, ...] = ()
    not_recorded: str = ""
    problem: str = ""
    defect: str = ""


class StartAudit(msgspec.Struct, frozen=True, tag="audit"):
    """Asks for an audit of the logs of these owned partitions. Each part ends with its verdict, or when the audit is
    given up."""

    partitions: tuple[int, ...] | None  # None: of all that are LIVE
    level: str
