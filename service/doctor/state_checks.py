"""Whether what a recovery needs is there, and stays there. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.service.doctor.facts import Facts, Finding, InputSeen
from snapreplay.service.ports import TopicFacts

AGE_SHARE_MAX = 0.5  # of what the input retains, that the oldest snapshot in use may be old
SNAPSHOT_NOW = "snapreplay trigger-snapshot --wait"


def recoverable(facts: Facts) -> Iterator[Finding]:
    """A recovery now would find its way from what is in the topics."""
    for state in facts.states:
        where = f"partition {state.partition}"
        if state.missing is not None:
            yield Finding(
                "recovery",
                where,
                f"could not be recovered: {state.missing}",
                f"while its process lives: {SNAPSHOT_NOW}; else bring the topics back from a backup or mirror",
            )
        elif state.batch is None:
            yield Finding(
                "recovery",
                where,
                "holds no increment, not even the genesis",
                "a new app: snapreplay init MODULE:APP; an app that ran before has lost its increments: bring the"
                " topic back",
            )
        elif state.unusable is not None:
            yield Finding("recovery", where, state.unusable, SNAPSHOT_NOW)


def snapshot_age(facts: Facts) -> Iterator[Finding]:
    """Where only the input brings a snapshot forward, snapshots must be younger than what the input retains."""
    if not facts.by_replay:
        return
    for topic in facts.existing(*facts.inputs):
        retained_ms = _retained_ms(topic)
        for state in facts.states:
            if retained_ms is None or state.newest is None:
                continue
            age_ms = facts.now_ms - state.newest.created_at_ms
            if age_ms > AGE_SHARE_MAX * retained_ms:
                yield Finding(
                    "snapshot age",
                    f"partition {state.partition}",
                    f"its newest snapshot is {_hours(age_ms)} old, input {topic.name} keeps {_hours(retained_ms)}"
                    f" (retention.ms={retained_ms}): what came after the snapshot will be deleted",
                    f"{SNAPSHOT_NOW}; and raise retention.ms of the input, or lower snapshot.every_seconds",
                )


def record_times(facts: Facts) -> Iterator[Finding]:
    """Kafka deletes by the time in the records: what is older than retention.ms is gone at the next look."""
    for topic in facts.existing(*facts.inputs, *facts.outputs):
        retained_ms = _retained_ms(topic)
        old = _oldest(facts)
        if retained_ms is None or old is None or _own_time(topic):
            continue
        age_ms = facts.now_ms - (old.timestamp_ms or 0)
        if age_ms <= retained_ms or (topic.name in facts.inputs and topic.name != old.topic):
            continue
        yield Finding(
            "record times",
            topic.name,
            f"input {old.topic} is at records that are {_hours(age_ms)} old, {topic.name} keeps {_hours(retained_ms)}"
            f" (retention.ms={retained_ms}): "
            + (
                "they are deleted unread"
                if topic.name in facts.inputs
                else "outputs that are given their record's time (timestamp_ms=) are deleted at once"
            ),
            facts.alter(topic.name, "retention.ms=-1")
            + "; or message.timestamp.type=LogAppendTime, before the records are written",
        )


def _oldest(facts: Facts) -> InputSeen | None:
    seen = [
        each for state in facts.states for each in state.inputs if each.timestamp_ms is not None
    ]
    return min(seen, key=lambda each: each.timestamp_ms or 0, default=None)


def _own_time(topic: TopicFacts) -> bool:
    return topic.config.get("message.timestamp.type") == "LogAppendTime"


def _retained_ms(topic: TopicFacts) -> int | None:
    """None: nothing is deleted by time."""
    if "delete" not in topic.config.get("cleanup.policy", "delete"):
        return None
    retained_ms = int(topic.config.get("retention.ms", "-1"))
    return retained_ms if retained_ms >= 0 else None


def _hours(duration_ms: int) -> str:
    hours = duration_ms / 3_600_000
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h"
