"""The checks how the topics are configured, and whether they are healthy. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.app.ways import keys_moved_hint, own_topic_grown_hint
from snapreplay.counted import counted
from snapreplay.service.doctor.cluster_checks import BROKERS_MIN
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts
from snapreplay.service.ports import TopicFacts
from snapreplay.service.topics.requirements import KEPT_FOR_EVER, RECORD_BYTES_NEEDED, misfits_of

RECORD_FRAME_BYTES = 2048  # record batch, headers and envelope around a chunk


def existence(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that every topic of the app exists."""
    if facts.app is None:
        return
    for name in (*facts.inputs, *facts.outputs):
        if name not in facts.topics:
            yield Diagnosis(
                "topics",
                name,
                "does not exist, or this user may not see it",
                f"`snapreplay topics ensure {facts.app_name} --partitions N`",
            )
    missing = [name for name in facts.own if name not in facts.topics]
    pair = [name for name in facts.own[:2] if name in missing]
    for name in missing:
        yield Diagnosis("topics", name, *_missing(facts, name, pair))


def _missing(facts: DoctorFacts, name: str, pair: list[str]) -> tuple[str, str]:
    """Tell problem and remedy for a missing topic of our own. `pair`: the missing ones of increments and snapshots."""
    ensure, run = f"snapreplay topics ensure {facts.app_name}", f"snapreplay run {facts.app_name}"
    if name in pair and facts.members:
        running = f"{counted(facts.members, 'process')} of the app"
        return (
            f"does not exist while the group has {running}: their memory may hold the only copy of what was in it",
            f"`{ensure}`: they then write it by themselves. Do not stop any of them before",
        )
    if name in pair and len(pair) == 1:
        return (
            "is missing while its counterpart exists: state was lost or removed",
            f"bring the topic back from a backup or mirror; or `{ensure} --replace-lost`, then `{run}`, whose hint says"
            " what can be accepted" + facts.or_savepoint(),
        )
    init = f", then `snapreplay init {facts.app_name}`" if pair else ""
    saved = facts.or_savepoint(own_are_gone=True) if pair else ""
    return "does not exist, or this user may not see it", f"`{ensure}`{init}{saved}"


def partition_counts(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that a key has the same partition number in all inputs and in our topics."""
    inputs = dict.fromkeys((*facts.inputs, *facts.recorded_inputs))
    counts = {t.name: t.partition_count for t in facts.existing(*inputs, *facts.own[:2])}
    if len(set(counts.values())) < 2:
        return
    yield Diagnosis(
        "partition counts",
        ", ".join(counts),
        ", ".join(f"{name} has {count}" for name, count in counts.items()),
        _counts_remedy(facts, counts),
    )


def patterns(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that each topic that matches a pattern of the inputs has been taken in, or can be."""
    if facts.app is None:
        return
    for name, problem in misfits_of(facts.app, facts.settings, facts.topics, facts.partition_count).items():
        if name in facts.recorded_inputs or facts.topics[name].denied is not None:
            continue  # other checks say what is wrong with these
        remedy = (
            f"nothing, if it is not to be read: the app runs without it. Otherwise copy its records to a topic with"
            f" {counted(facts.partition_count, 'partition')} whose name matches, so that each key has the partition of"
            " its state; or narrow the pattern in App(inputs=[…])"
            if facts.topics[name].partition_count != facts.partition_count
            else "follow it, and the topic is taken in within 30 s; or narrow the pattern in App(inputs=[…])"
        )
        yield Diagnosis("patterns", name, problem, remedy)


def _counts_remedy(facts: DoctorFacts, counts: Mapping[str, int]) -> str:
    app_id, needed = (facts.app.app_id if facts.app else "", "inputs and own topics need the same number; ")
    of_inputs = {counts[name] for name in facts.inputs if name in counts}
    if len(of_inputs) > 1 or facts.own[0] not in counts:
        return "copy an input to a topic with as many partitions as the others, and name that in App(inputs=[…])"
    if max(of_inputs, default=0) < max(counts[name] for name in facts.own[:2] if name in counts):
        return needed + own_topic_grown_hint(app_id)
    return needed + keys_moved_hint(app_id, counts[facts.own[0]])


def kept_for_ever(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that only the owner trims our topics, never Kafka."""
    for topic in facts.existing(*facts.own[:2]):
        for name, wanted in KEPT_FOR_EVER.items():
            found = topic.config.get(name, wanted)
            if found != wanted:
                yield Diagnosis(
                    "retention",
                    topic.name,
                    f"{name}={found}: Kafka would delete what a recovery needs",
                    facts.alter(topic.name, f"{name}={wanted}"),
                )


def replayable(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that no input is compacted that may be replayed: a replay sees fewer records than the first pass."""
    for topic in facts.existing(*facts.inputs):
        with_changes = "`--set changelog.enabled=true`; or " if facts.is_map else ""
        if facts.by_replay and "compact" in topic.config.get("cleanup.policy", ""):
            yield Diagnosis(
                "retention",
                topic.name,
                f"cleanup.policy={topic.config['cleanup.policy']}, but this app recovers by replay",
                f"{with_changes}{facts.alter(topic.name, 'cleanup.policy=delete')}",
            )


def own_of_others(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that no own topic of another app is an input: older versions took in whatever matched a pattern."""
    known = {name for state in facts.states for name in state.topic_ids}
    for name in sorted(known & facts.left_out.keys()):
        yield Diagnosis(
            "inputs",
            name,
            f"is an input of this app, but {facts.topics[name].not_an_input}",
            f"`snapreplay inputs {facts.app_name} --retire {name} --leave-records`",
        )


def durability(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that the loss of one broker loses no committed record and stops nothing."""
    count = len(facts.brokers)
    wanted = min(BROKERS_MIN, count)
    for topic in facts.existing(*facts.inputs, *facts.outputs, *facts.own):
        if topic.replication_factor < wanted:
            yield Diagnosis(
                "replication",
                topic.name,
                f"replication factor {topic.replication_factor} with {counted(count, 'broker')}",
                facts.replicate(topic.name, wanted),
            )
    for topic in facts.existing(*facts.inputs, *facts.outputs, *facts.own, TRANSACTION_TOPIC):
        yield from _in_sync_minimum(facts, topic)
        if topic.config.get("unclean.leader.election.enable") == "true":
            yield Diagnosis(
                "replication",
                topic.name,
                "unclean.leader.election.enable=true: if a lagging replica becomes leader, committed records are lost",
                facts.alter(topic.name, "unclean.leader.election.enable=false"),
            )


def _in_sync_minimum(facts: DoctorFacts, topic: TopicFacts) -> Iterator[Diagnosis]:
    factor, least = topic.replication_factor, int(topic.config.get("min.insync.replicas", "1"))
    if factor >= BROKERS_MIN and least < 2:
        problem = f"min.insync.replicas={least}: a write is acknowledged with one copy"
    elif least >= factor > 1:
        problem = f"min.insync.replicas={least} of {counted(factor, 'replica')}: without one broker every write fails"
    elif least > factor:
        problem = f"min.insync.replicas={least} with {counted(factor, 'replica')}: older brokers refuse every write"
    else:
        return
    wanted = max(1, factor - 1)
    yield Diagnosis("replication", topic.name, problem, facts.alter(topic.name, f"min.insync.replicas={wanted}"))


def replicas(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that every partition has a leader, and that all its replicas follow."""
    for partition, seen in sorted(facts.replicas.items()):
        topic = facts.topics.get(partition.topic)
        least = int(topic.config.get("min.insync.replicas", "1")) if topic else 1
        least = min(least, len(seen.replicas))  # more than all is another finding
        behind = sorted(set(seen.replicas) - set(seen.in_sync))
        if seen.leader < 0:
            problem = f"no leader: none of its replicas {list(seen.replicas)} is running"
        elif len(seen.in_sync) < least:
            in_sync = counted(len(seen.in_sync), "replica")
            problem = (
                f"only {in_sync} in sync, but min.insync.replicas={least}: writes are refused;"
                f" replicas {behind} are not in sync"
            )
        elif behind:
            problem = f"replicas {behind} are not in sync"
        else:
            continue
        yield Diagnosis(
            "replication",
            str(partition),
            problem,
            "start these brokers and wait until they have caught up. Until then this finding is listed by"
            f" `snapreplay doctor {facts.app_name}`",
        )


def record_sizes(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that our largest records fit into the topics."""
    chunk_bytes = facts.settings.snapshot.chunk_bytes_max + RECORD_FRAME_BYTES
    for topic in facts.existing(*facts.own[:2]):
        needed = max(RECORD_BYTES_NEEDED, chunk_bytes)
        if _message_bytes(topic) < needed:
            yield Diagnosis(
                "record sizes",
                topic.name,
                f"max.message.bytes={_message_bytes(topic)}, but our records need {needed}",
                facts.alter(topic.name, f"max.message.bytes={DEFAULT_LIMIT_BYTES}"),
            )
    yield from _dead_letter_sizes(facts)


def _dead_letter_sizes(facts: DoctorFacts) -> Iterator[Diagnosis]:
    largest = max((_message_bytes(topic) for topic in facts.existing(*facts.inputs)), default=0)
    for topic in facts.existing(*facts.own[2:]):
        if _message_bytes(topic) < largest:
            yield Diagnosis(
                "record sizes",
                topic.name,
                f"max.message.bytes={_message_bytes(topic)}, but an input takes {largest}: a large record would"
                " be dead-lettered without its value",
                facts.alter(topic.name, f"max.message.bytes={largest}"),
            )


def _message_bytes(topic: TopicFacts) -> int:
    return int(topic.config.get("max.message.bytes", DEFAULT_LIMIT_BYTES))
