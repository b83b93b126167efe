"""Whether what a recovery needs is there, and stays there. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.doctor.facts import Diagnosis, Facts, InputSeen, StateSeen
from snapreplay.service.ports import TopicFacts

AGE_SHARE_MAX = 0.5  # of what the input retains, that the oldest snapshot in use may be old


def recoverable(facts: Facts) -> Iterator[Diagnosis]:
    """A recovery now would find its way from what is in the topics."""
    for state in facts.states:
        where = f"partition {state.partition}"
        if state.missing is not None:
            yield Diagnosis(
                "recovery",
                where,
                f"could not be recovered: {state.missing}",
                _remedy(facts, state),
            )
        elif state.batch is None:
            yield Diagnosis(
                "recovery",
                where,
                "holds no increment, not even the genesis",
                _remedy(facts, state)
                if state.partition in facts.owned
                else f"a new app: `snapreplay init {facts.app_name}`; an app that ran before has lost its increments:"
                f" bring the topic back, or `snapreplay run {facts.app_name}`: its hint says what can be accepted",
            )
        elif state.unusable is not None:
            yield Diagnosis("recovery", where, state.unusable, _snapshot(facts, state.partition))


def same_topics(facts: Facts) -> Iterator[Diagnosis]:
    """A name says nothing: a topic that was made again has another id. Missing topics are told elsewhere."""
    now = {topic.name: topic.topic_id for topic in facts.topics.values()}
    found: dict[TopicChange, list[int]] = {}
    for state in facts.states:
        for change in changes((*facts.inputs, *facts.own[:2]), state.topic_ids, now):
            if change.found_id is not None:
                found.setdefault(change, []).append(state.partition)
    for change, numbers in found.items():
        yield Diagnosis(
            "topic ids",
            change.topic,
            f"was deleted and created again: the log of {_partitions(numbers)} records id {change.recorded_id},"
            f" now it is {change.found_id}",
            _remade(facts, change.topic),
        )


def _partitions(numbers: list[int]) -> str:
    return f"partition{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _remade(facts: Facts, topic: str) -> str:
    if topic in facts.inputs:
        return (
            "none, if it holds the same records at the same offsets: the next batch records the new id; otherwise the"
            f" partitions stop, and their hint says what can be accepted: {_hints(facts)}"
        )
    if facts.members:
        return (
            "stop no process of the app: its memory may hold the only copy, and its owner writes that by itself;"
            " `snapreplay restore-status` says when all are live and recoverable"
        )
    return (
        "bring its records back, with their offsets, from a backup or mirror; or"
        f" `snapreplay run {facts.app_name}`: what cannot be recovered is told with what can be accepted"
    )


def _hints(facts: Facts) -> str:
    return "`snapreplay restore-status`" if facts.members else f"`snapreplay run {facts.app_name}`"


def snapshot_age(facts: Facts) -> Iterator[Diagnosis]:
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
                yield Diagnosis(
                    "snapshot age",
                    f"partition {state.partition}",
                    f"its newest snapshot is {_hours(age_ms)} old, input {topic.name} keeps {_hours(retained_ms)}"
                    f" (retention.ms={retained_ms}): what came after the snapshot will be deleted",
                    f"{_snapshot(facts, state.partition)}; and {facts.alter(topic.name, f'retention.ms={2 * age_ms}')},"
                    f" or `--set snapshot.every_seconds={max(1, retained_ms // 4000)}`",
                )


def _remedy(facts: Facts, state: StateSeen) -> str:
    """Who has the state in memory can write it once more; who has not can only say what is left."""
    if state.partition in facts.owned and state.snapshot_helps:
        return (
            f"`{_trigger(state.partition)}` while the process that has the partition lives: its memory may hold the"
            " only copy, so do not restart it before"
        )
    if state.partition in facts.owned:
        return "`snapreplay restore-status` of the process that has the partition: its hint says what can be accepted"
    return f"`snapreplay run {facts.app_name}`: its hint says what can be accepted"


def _snapshot(facts: Facts, partition: int) -> str:
    if partition in facts.owned:
        return f"`{_trigger(partition)}`"
    return f"`snapreplay run {facts.app_name}`, then `{_trigger(partition)}`"


def _trigger(partition: int) -> str:
    """The command that a running service takes."""
    return f"snapreplay trigger-snapshot --partition {partition} --wait"


def record_times(facts: Facts) -> Iterator[Diagnosis]:
    """Kafka deletes by the time in the records: what is older than retention.ms is gone at the next look."""
    for topic in facts.existing(*facts.inputs, *facts.outputs):
        retained_ms = _retained_ms(topic)
        old = _oldest(facts)
        if retained_ms is None or old is None or _own_time(topic):
            continue
        age_ms = facts.now_ms - (old.timestamp_ms or 0)
        if age_ms <= retained_ms or (topic.name in facts.inputs and topic.name != old.topic):
            continue
        yield Diagnosis(
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
