"""The checks whether the topics have, and keep, what a recovery needs. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.service.clock import time_of
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.doctor.facts import Diagnosis, DoctorFacts, StateSeen, partitions
from snapreplay.service.ports import TopicFacts
from snapreplay.snapshots.format.records import NO_REASON

AGE_SHARE_MAX = 0.5  # how old the newest snapshot may be, as a share of the input's retention


def recoverable(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that a recovery would succeed now with what is in the topics."""
    for state in facts.states:
        where = f"partition {state.partition}"
        if state.missing is not None:
            yield Diagnosis("recovery", where, f"a recovery would fail: {state.missing}", _remedy(facts, state))
        elif state.batch is None:
            yield Diagnosis(
                "recovery",
                where,
                "holds no increment, not even the genesis",
                _remedy(facts, state)
                if state.partition in facts.owned
                else f"if the app is new, `snapreplay init {facts.app_name}`. Otherwise its increments are lost: bring"
                f" the topic back, or `snapreplay run {facts.app_name}`, whose hint says what can be"
                f" accepted{facts.or_savepoint()}",
            )
        elif state.unusable is not None:
            yield Diagnosis("recovery", where, state.unusable, _snapshot(facts, state.partition))


def paused(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that nobody has paused a partition, and forgotten it."""
    for state in facts.states:
        if state.paused is not None:
            yield Diagnosis(
                "pause",
                f"partition {state.partition}",
                f"paused since {time_of(state.paused.since_ms):%Y-%m-%d %H:%M:%S} UTC:"
                f" {state.paused.reason or NO_REASON}; nothing of it is processed, whoever owns it",
                f"when that is over, `snapreplay resume --partition {state.partition} --wait`",
            )


def same_cluster(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that the chains began in this cluster: the offsets that they record mean nothing in another one."""
    found = _of_other_clusters(facts)
    for cluster_id in sorted(set(found.values())):
        numbers = [number for number, other in found.items() if other == cluster_id]
        yield Diagnosis(
            "cluster",
            partitions(numbers),
            f"began in cluster {cluster_id}, but this is cluster {facts.cluster_id}: its topics are copies",
            f"give the `--bootstrap-servers HOST:PORT` of cluster {cluster_id}; or `snapreplay run {facts.app_name}`,"
            " whose hint says what a copy can be used for",
        )


def _of_other_clusters(facts: DoctorFacts) -> dict[int, str]:
    return {
        state.partition: state.cluster_id
        for state in facts.states
        if state.cluster_id and facts.cluster_id and state.cluster_id != facts.cluster_id
    }


def same_topics(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that no topic was created again: it would have the same name but another id. Missing topics are
    reported elsewhere."""
    now = {topic.name: topic.topic_id for topic in facts.topics.values()}
    found: dict[TopicChange, list[int]] = {}
    elsewhere = _of_other_clusters(facts)  # there each topic has another id
    for state in facts.states:
        if state.partition in elsewhere:
            continue
        for change in changes((*facts.inputs, *facts.own[:2]), state.topic_ids, now):
            if change.found_id is not None:
                found.setdefault(change, []).append(state.partition)
    for change, numbers in found.items():
        yield Diagnosis(
            "topic ids",
            change.topic,
            f"was deleted and created again: {partitions(numbers)} recorded id {change.recorded_id}, the topic now has"
            f" id {change.found_id}",
            _remade(facts, change.topic),
        )


def _remade(facts: DoctorFacts, topic: str) -> str:
    if topic in facts.inputs:
        hints = "snapreplay restore-status" if facts.members else f"snapreplay run {facts.app_name}"
        return (
            "if it holds the same records at the same offsets, do nothing: the next batch records the new id. Otherwise"
            f" the partitions stop, and their hint says what can be accepted: `{hints}`"
        )
    if facts.members:
        return (
            "do not stop any process of the app: its memory may hold the only copy, which it writes by itself."
            " `snapreplay restore-status` shows when all partitions are live and recoverable"
        )
    return (
        "bring its records back, with their offsets, from a backup or mirror; or"
        f" `snapreplay run {facts.app_name}`, whose hint says what can be accepted"
    )


def snapshot_age(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that snapshots are younger than the input's retention, if only a replay brings one forward."""
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
                    f"its newest snapshot is {_hours(age_ms)} old, but input {topic.name} keeps {_hours(retained_ms)}"
                    f" (retention.ms={retained_ms}): the records after the snapshot will be deleted",
                    f"{_snapshot(facts, state.partition)}; and {facts.alter(topic.name, f'retention.ms={2 * age_ms}')},"
                    f" or `--set snapshot.every_seconds={max(1, retained_ms // 4000)}`",
                )


def _remedy(facts: DoctorFacts, state: StateSeen) -> str:
    """Say what to do: a process with the state in memory can write it again; otherwise only what is left can be
    accepted."""
    if state.partition in facts.owned and state.snapshot_helps:
        return (
            f"`{_trigger(state.partition)}` while the owner of the partition is running. Do not restart it before: its"
            " memory may hold the only copy"
        )
    if state.partition in facts.owned:
        return "`snapreplay restore-status` on the owner of the partition: the hint there says what can be accepted"
    return f"`snapreplay run {facts.app_name}`: its hint says what can be accepted"


def _snapshot(facts: DoctorFacts, partition: int) -> str:
    if partition in facts.owned:
        return f"`{_trigger(partition)}`"
    return f"`snapreplay run {facts.app_name}`, then `{_trigger(partition)}`"


def _trigger(partition: int) -> str:
    return f"snapreplay trigger-snapshot --partition {partition} --wait"


def record_times(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that records are not deleted early, as Kafka goes by their own timestamps: what is older than
    retention.ms goes at the next check."""
    # Without a timestamp Kafka goes by the file's time.
    seen = [(at_ms, name) for state in facts.states for name, at_ms in state.timestamps_ms.items() if at_ms >= 0]
    if not seen:
        return
    oldest_ms, oldest_input = min(seen)
    age_ms = facts.now_ms - oldest_ms
    for topic in facts.existing(*facts.inputs, *facts.outputs):
        retained_ms = _retained_ms(topic)
        if retained_ms is None or topic.config.get("message.timestamp.type") == "LogAppendTime":
            continue
        if age_ms <= retained_ms or (topic.name in facts.inputs and topic.name != oldest_input):
            continue
        yield Diagnosis(
            "record times",
            topic.name,
            f"input {oldest_input} is at records that are {_hours(age_ms)} old, but {topic.name} keeps"
            f" {_hours(retained_ms)} (retention.ms={retained_ms}): "
            + (
                "they are deleted before they are read"
                if topic.name in facts.inputs
                else "outputs that get their record's time (timestamp_ms=) are deleted at once"
            ),
            facts.alter(topic.name, "retention.ms=-1")
            + "; or set message.timestamp.type=LogAppendTime before the records are written",
        )


def _retained_ms(topic: TopicFacts) -> int | None:
    """Return the retention by time; None: nothing is deleted by time."""
    if "delete" not in topic.config.get("cleanup.policy", "delete"):
        return None
    retained_ms = int(topic.config.get("retention.ms", "-1"))
    return retained_ms if retained_ms >= 0 else None


def _hours(duration_ms: int) -> str:
    hours = duration_ms / 3_600_000
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h"
