"""Expressions of Prometheus, compared with the metrics of the code."""

import re
from functools import cache

import msgspec

from snapreplay.service.control.counters import EVENTS, FALSE_ALARMS, TAKEOVERS, PartitionMetrics, Result
from snapreplay.service.control.metrics import SHOWN, DocumentCollector
from snapreplay.service.control.restore_plan import DrillState
from snapreplay.service.control.status import StandbyStatus
from snapreplay.service.core.adoption import Reason
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.phase import CopyState, Phase, RestoreMode
from snapreplay.snapshots.proof.report import Level
from tests.support.fake_control import FakeControl

TARGET = {"instance", "job"}
"""Labels that Prometheus adds."""
WORDS = {
    "phase": set(Phase),
    "result": {*Result, *Reason, *DrillState, "adopted"},
    "level": set(Level),
    "kind": {"CommitInDoubt"},
    "mode": {*RestoreMode, "warm", "none"},
    "state": set(CopyState),
}


@cache
def metrics() -> dict[str, set[str]]:
    """Return each metric with its labels, without those of Prometheus; a histogram as its parts."""
    every = PartitionMetrics("promql", 0)
    every.batch_committed(0.0)
    every.snapshot_ended(Result.SUCCEEDED)
    every.proposal_ended("adopted")
    every.restore_ended(Result.SUCCEEDED, None)
    every.failed("CommitInDoubt", "retry")
    every.restore_predicted(1.0)
    every.drill_ended(DrillState.SUCCEEDED, 1.0)
    for each in (TAKEOVERS, FALSE_ALARMS):
        each.labels("promql")
    found = {each.name: {"app", "partition", *filter(None, [each.label])} for each in SHOWN}
    document = msgspec.structs.replace(FakeControl([]).document(), standbys=(StandbyStatus(0),), copies=Copies())
    for family in DocumentCollector(document, EVENTS).collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return {**found, "up": set()}


def wrong_words(expression: str) -> list[str]:
    """Find metrics, labels and values of labels that no process ever shows. `$variable` may be anything."""
    text = re.sub(r'"[^"]*"', '""', expression)
    used = set(re.findall(r"\b(?:(?:snapreplay|process|python)_\w+|up)\b", text))
    assert used, expression
    wrong = used - metrics().keys()
    known = set().union(*(metrics().get(name, set()) for name in used)) | TARGET
    for selector in re.findall(r"\{([^}]*)\}", expression):
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector):
            words = value.split("|") if "~" in operator else [value]
            wrong |= {label} - known
            wrong |= {word for word in words if "$" not in word and word not in WORDS.get(label, {word})}
    for labels in re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([^)]*)\)", text):
        wrong |= {each.strip() for each in labels.split(",")} - known
    return sorted(wrong)
