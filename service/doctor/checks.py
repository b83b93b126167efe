"""All checks of the facts, and the report of their findings. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from snapreplay.app import names
from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.app.ways import beyond_an_older_disk, keys_moved_hint, own_topic_grown_hint
from snapreplay.counted import counted
from snapreplay.service.clock import time_of
from snapreplay.service.config.typed import addressed
from snapreplay.service.core import broker_limits
from snapreplay.service.core.inspected import Broker, OpenTransaction
from snapreplay.service.core.peers import APART_MIN, declared, differing
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts, Log, StateSeen, partitions
from snapreplay.service.doctor.key_checks import keyed_alike
from snapreplay.service.kafka.errors import principal_of
from snapreplay.service.ports import TopicFacts
from snapreplay.service.topics.requirements import KEPT_FOR_EVER, RECORD_BYTES_NEEDED, misfits_of
from snapreplay.snapshots.format.records import NO_REASON

Found = Iterator[tuple[str, str, str]]
"""What is wrong: where, the problem with its values, the remedy."""
Check = Callable[[DoctorFacts], Iterator[Diagnosis]]
CHECKS: list[Check] = []
"""All checks, in the order of the report."""


def _check(name: str) -> Callable[[Callable[[DoctorFacts], Found]], Check]:
    """Register a check: what it finds becomes findings of this name."""

    def registered(look: Callable[[DoctorFacts], Found]) -> Check:
        def check(facts: DoctorFacts) -> Iterator[Diagnosis]:
            return (Diagnosis(name, *found) for found in look(facts))

        CHECKS.append(check)
        return check

    return registered


BROKERS_MIN = 3
IDEMPOTENT_WRITES = "idempotent writes"
CLOCK_SKEW_MS_MAX = 2000
ID_EXPIRATION_MS_MIN = 3_600_000
OPEN_MS_MAX = 60_000  # of a transaction in an input or output: its readers wait for that long


_QUOTAS_MIN = {
    "producer_byte_rate": (2.0**20, "less than the largest batch of a second is written; outputs come later and later"),
    "consumer_byte_rate": (2.0**20, "inputs, and the snapshots of a restore, are read at this many bytes a second"),
    "request_percentage": (25.0, "each request waits for up to a second, and a batch needs three"),
}
"""Of each quota, below which value it is a finding, and what it does."""


@_check("brokers")
def brokers(facts: DoctorFacts) -> Found:
    """Check that there are enough brokers, each reachable at its advertised address."""
    if len(facts.brokers) < BROKERS_MIN:
        yield (
            "cluster",
            f"{counted(len(facts.brokers), 'broker')}: if one fails, there is no second copy of the data, or no quorum",
            f"start the missing brokers: run at least {BROKERS_MIN}; one is enough for development",
        )
    for broker in facts.brokers:
        if not broker.reachable:
            yield (
                _named(broker),
                "the cluster advertises it, but it cannot be reached from here",
                "start it; or correct its advertised.listeners, DNS or the firewall: after the first contact clients"
                " connect to this address",
            )


def _named(broker: Broker) -> str:
    return f"broker {broker.node_id} at {broker.address}"


@_check("versions")
def versions(facts: DoctorFacts) -> Found:
    """Check that all brokers have one version, which we support."""
    for broker in facts.brokers:
        if broker.missing:
            yield (
                _named(broker),
                f"does not support our version of {', '.join(broker.missing)}",
                "upgrade the broker (Kafka 3.0 or newer), or snapreplay",
            )
    spoken = [broker.apis for broker in facts.brokers if broker.reachable]
    if any(apis != spoken[0] for apis in spoken):
        yield (
            "cluster",
            "the brokers offer different API versions",
            "finish the rolling upgrade, so that all brokers run the same release",
        )


@_check("timeout limits")
def timeout_limits(facts: DoctorFacts) -> Found:
    """Check that the brokers accept our transactions' and our sessions' timeouts, and that ids outlive a quiet hour."""
    timeouts, config = facts.settings.timeouts, facts.broker_config
    found = (
        broker_limits.transaction_timeout(timeouts.transaction_ms, config),
        broker_limits.session_timeout(facts.settings.group.session_timeout_ms, config),
    )
    for each in found:
        if each is not None:
            yield (each.setting, each.problem, each.remedy)
    expiration = facts.broker_config.get("transactional.id.expiration.ms")
    if expiration is not None and int(expiration) < ID_EXPIRATION_MS_MIN:
        yield (
            "brokers",
            f"transactional.id.expiration.ms={expiration}: a partition that has no input for that long must recover"
            " at its next record",
            f"set transactional.id.expiration.ms={7 * 24 * ID_EXPIRATION_MS_MIN} (Kafka's default) on every broker",
        )


@_check("quotas")
def quotas(facts: DoctorFacts) -> Found:
    """Check that no quota makes the brokers wait with batches, reads and restores."""
    for each in facts.quotas:
        least, told = _QUOTAS_MIN.get(each.name, (0.0, ""))
        if each.value < least:
            yield (
                each.who,
                f"{each.name}={each.value:g}: {told}",
                f"raise it: `kafka-configs.sh {facts.to_cluster} --alter {each.options} --add-config"
                f" {each.name}={least:.0f}`; or let the app write and read less",
            )


@_check("accidental topics")
def accidental_topics(facts: DoctorFacts) -> Found:
    """Check that no topic is created by asking for it: we never do so; other clients may."""
    if facts.broker_config.get("auto.create.topics.enable") == "true":
        yield (
            "brokers",
            "auto.create.topics.enable=true: a client that asks for a deleted topic or a mistyped name creates it, with"
            " the brokers' default retention and partition count",
            "set auto.create.topics.enable=false on every broker",
        )


@_check("clock")
def clock(facts: DoctorFacts) -> Found:
    """Compare the transaction coordinator's clock with ours. Records carry our time, retention goes by the
    brokers'."""
    probe = facts.probe
    if probe is None or probe.coordinator_ms is None:
        return
    ahead_ms = max(0, probe.coordinator_ms - probe.after_ms)
    behind_ms = max(0, probe.before_ms - probe.coordinator_ms)
    skew_ms = max(ahead_ms, behind_ms)
    if skew_ms > CLOCK_SKEW_MS_MAX:
        yield (
            "transaction coordinator",
            f"its clock is {skew_ms} ms {'ahead of' if ahead_ms else 'behind'} ours",
            "run NTP (chrony) on the brokers and here: `timedatectl` shows whether a clock is synchronised",
        )


@_check("transaction log")
def transaction_log(facts: DoctorFacts) -> Found:
    """Check Kafka's own transaction log. Without it nothing commits."""
    for topic in facts.existing(TRANSACTION_TOPIC):
        wanted = min(BROKERS_MIN, len(facts.brokers))
        if topic.replication_factor < wanted:
            yield (
                TRANSACTION_TOPIC,
                f"replication factor {topic.replication_factor} with {counted(len(facts.brokers), 'broker')}: if one"
                " broker is lost, every transaction stops or its outcome is forgotten",
                f"{facts.replicate(topic.name, wanted)}; and set"
                f" transaction.state.log.replication.factor={wanted} on every broker",
            )


@_check("access")
def writes(facts: DoctorFacts) -> Found:
    """Tell what the probe's transaction was not allowed."""
    if facts.probe is None:
        return
    for what, reason in facts.probe.refused.items():
        yield (what, f"this user may not write: {reason}", _acl(facts, what))


@_check("group")
def foreign(facts: DoctorFacts) -> Found:
    """Check that only processes of the app are in its group."""
    if facts.app is not None and facts.foreign is not None:
        yield (f"group {facts.app.app_id}", facts.foreign.message, facts.foreign.hint)


@_check("programs")
def programs(facts: DoctorFacts) -> Found:
    """Check that the processes of the group run one program, and the one that is examined or a version of it."""
    if facts.app is None:
        return
    running = dict[str, list[str]]()
    for peer in facts.peers:
        if peer.declares:
            running.setdefault(peer.declares, []).append(f"process {peer.process_id} on {peer.host}")
    examined = declared(facts.app)
    if running and all(len(differing(examined, each)) >= APART_MIN for each in running):
        running[examined] = [f"{facts.app_name}, which is examined here,"]
    first, *others = sorted(running, key=lambda each: (-len(running[each]), each)) or [""]
    for other in others:
        yield (
            f"group {facts.app.app_id}",
            f"{' and '.join(running[first])} {'run' if len(running[first]) > 1 else 'runs'} another program than"
            f" {' and '.join(running[other])}: they differ in their {' and '.join(differing(first, other))}. Each"
            " processes some of the partitions, with the state of the other",
            'if they are two programs, stop one of them and give it an app id of its own: `App("NEW-ID", …)`. If they'
            " are two versions in a rolling upgrade, do nothing: this ends with the last old process",
        )


@_check("access")
def identities(facts: DoctorFacts) -> Found:
    """Check the permissions on the app's group and the transactional ids of its partitions: without them no
    partition has an owner."""
    app_id = facts.app.app_id if facts.app else ""
    for what, reason in facts.refused.items():
        if what == app_id:
            remedy = f"{_add(facts)} Read --group {app_id}"
            yield (f"group {app_id}", f"this user may not join it: {reason}", remedy)
    ids = [what for what in facts.refused if what != app_id]
    if ids:
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        yield (
            ", ".join(ids[:3]) + more,
            f"this user may not use these transactional ids: {facts.refused[ids[0]]}",
            _acl(facts, ids[0]),
        )


def _add(facts: DoctorFacts) -> str:
    principal = principal_of(facts.settings) or "User:NAME"  # a certificate has its own
    return f"kafka-acls.sh {facts.to_cluster} --add --allow-principal {principal} --operation"


def _acl(facts: DoctorFacts, what: str) -> str:
    add = _add(facts)
    if what == IDEMPOTENT_WRITES:
        return f"{add} IdempotentWrite --cluster"
    if what in (*facts.outputs, *facts.own):
        return f"{add} Write --topic {what}"
    app_id = facts.app.app_id if facts.app else what
    return f"{add} Write --transactional-id {app_id} --resource-pattern-type prefixed"


@_check("open transaction")
def pinned(facts: DoctorFacts) -> Found:
    """Check that nothing committed is hidden behind somebody's open transaction (the last stable offset is below
    the high watermark). In our own topics a foreign one is wrong at once: it hides our claims and increments."""
    for log in facts.logs:
        opened = log.pinned_by
        if opened is None or log.held_back <= 0 or not _too_long(facts, log, opened):
            continue
        yield (
            str(log.partition),
            f"last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}: {log.held_back}"
            f" offsets are held back by {_who(facts, opened)}",
            _pin_remedy(facts, log, opened),
        )


@_check("transactions")
def stuck(facts: DoctorFacts) -> Found:
    """Check that the coordinators can end what the owners began. Until then nobody can fence."""
    if facts.app is None or not facts.stuck:
        return
    app_id, first = facts.app.app_id, min(facts.stuck)
    seen = facts.stuck[first]
    yield (
        partitions(sorted(facts.stuck)),
        f"the coordinator cannot end the last transaction of {names.transactional_id(app_id, first)} ({seen.state},"
        f" epoch {seen.producer_epoch}): until it has, there is no owner",
        f"start the brokers that are away. If none is away, {beyond_an_older_disk(app_id)}",
    )


def _too_long(facts: DoctorFacts, log: Log, opened: OpenTransaction) -> bool:
    if opened.transactional_id is None or opened.started_at_ms is None:
        return True
    ours = facts.app is not None and opened.transactional_id == names.transactional_id(
        facts.app.app_id, log.partition.partition
    )
    if log.partition.topic in facts.own and not ours:
        return True
    longest_ms = facts.settings.timeouts.transaction_ms if ours else OPEN_MS_MAX
    return facts.now_ms - opened.started_at_ms > longest_ms


def _who(facts: DoctorFacts, opened: OpenTransaction) -> str:
    if opened.transactional_id is None:
        return (
            f"a hanging transaction of producer id {opened.producer_id}, epoch {opened.producer_epoch}, from offset"
            f" {opened.start_offset} on, which no coordinator knows"
        )
    text = f"transactional id {opened.transactional_id!r} (producer id {opened.producer_id})"
    if opened.started_at_ms is None or opened.timeout_ms is None:
        return text
    open_s = (facts.now_ms - opened.started_at_ms) / 1000
    return f"{text}, open for {open_s:.0f} s of at most {opened.timeout_ms / 1000:.0f} s"


def _pin_remedy(facts: DoctorFacts, log: Log, opened: OpenTransaction) -> str:
    if opened.transactional_id is None:
        topic, partition = log.partition
        return (
            f"kafka-transactions.sh {facts.to_cluster} abort --topic {topic} --partition {partition}"
            f" --start-offset {opened.start_offset}"
        )
    keep_out = " and revoke its permission to write here" if log.partition.topic in facts.own else ""
    return (
        f"stop the process that uses {opened.transactional_id}{keep_out}. Its transaction ends at its timeout, or when"
        f" a producer of this id starts; to see it: kafka-transactions.sh {facts.to_cluster} describe"
        f" --transactional-id {opened.transactional_id}"
    )


RECORD_FRAME_BYTES = 2048  # record batch, headers and envelope around a chunk


@_check("topics")
def existence(facts: DoctorFacts) -> Found:
    """Check that every topic of the app exists."""
    if facts.app is None:
        return
    for name in (*facts.inputs, *facts.outputs):
        if name not in facts.topics and name not in facts.own:
            yield (
                name,
                "does not exist, or this user may not see it",
                f"`snapreplay topics ensure {facts.app_name} --partitions N`",
            )
    missing = [name for name in facts.own if name not in facts.topics]
    pair = [name for name in facts.own[:2] if name in missing]
    for name in missing:
        yield (name, *_missing(facts, name, pair))


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
    if name in facts.internal and any(name in state.topic_ids for state in facts.states):
        return (
            "does not exist any more: records that were sent to it and not handled are lost",
            f"bring it back from a backup or mirror, with its old offsets; or `{ensure}`, then `{run}`, whose hint says"
            " what can be accepted",
        )
    init = f", then `snapreplay init {facts.app_name}`" if pair else ""
    saved = facts.or_savepoint(own_are_gone=True) if pair else ""
    return "does not exist, or this user may not see it", f"`{ensure}`{init}{saved}"


@_check("partition counts")
def partition_counts(facts: DoctorFacts) -> Found:
    """Check that a key has the same partition number in all inputs and in our topics."""
    inputs = dict.fromkeys((*facts.inputs, *facts.recorded_inputs))
    counts = {t.name: t.partition_count for t in facts.existing(*inputs, *facts.own[:2])}
    if len(set(counts.values())) < 2:
        return
    yield (
        ", ".join(counts),
        ", ".join(f"{name} has {count}" for name, count in counts.items()),
        _counts_remedy(facts, counts),
    )


@_check("patterns")
def patterns(facts: DoctorFacts) -> Found:
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
            else "follow it, and the topic is added within 30 s; or narrow the pattern in App(inputs=[…])"
        )
        yield (name, problem, remedy)


def _counts_remedy(facts: DoctorFacts, counts: Mapping[str, int]) -> str:
    app_id, needed = (facts.app.app_id if facts.app else "", "inputs and own topics need the same number; ")
    of_inputs = {counts[name] for name in facts.inputs if name in counts}
    shared = {counts[name] for name in facts.inputs if name in counts and name not in facts.internal}
    if len(shared) == 1 and len(of_inputs) > 1:
        return needed + "give the internal topic another name in `app.topic(…)`, and run `snapreplay topics ensure`"
    if len(of_inputs) > 1 or facts.own[0] not in counts:
        return "copy an input to a topic with as many partitions as the others, and name that in App(inputs=[…])"
    if max(of_inputs, default=0) < max(counts[name] for name in facts.own[:2] if name in counts):
        return needed + own_topic_grown_hint(app_id)
    return needed + keys_moved_hint(app_id, counts[facts.own[0]])


@_check("retention")
def kept_for_ever(facts: DoctorFacts) -> Found:
    """Check that only the owner trims our topics, never Kafka."""
    for topic in facts.existing(*facts.own[:2], *facts.internal):
        why = "a recovery needs" if topic.name in facts.own[:2] else "was not handled yet"
        for name, wanted in KEPT_FOR_EVER.items():
            if topic.config.get(name, wanted) != wanted:
                yield _to_alter(facts, topic, name, wanted, f"Kafka would delete what {why}")


def _to_alter(facts: DoctorFacts, topic: TopicFacts, name: str, wanted: object, why: str) -> tuple[str, str, str]:
    """Say that a setting of a topic has the wrong value, with the command that gives it another one."""
    return topic.name, f"{name}={topic.config.get(name)}: {why}", facts.alter(topic.name, f"{name}={wanted}")


@_check("retention")
def replayable(facts: DoctorFacts) -> Found:
    """Check that no input is compacted that may be replayed: a replay sees fewer records than the first pass."""
    for topic in facts.existing(*facts.inputs):
        with_changes = "`--set changelog.enabled=true`; or " if facts.is_map else ""
        if facts.by_replay and "compact" in topic.config.get("cleanup.policy", ""):
            yield (
                topic.name,
                f"cleanup.policy={topic.config['cleanup.policy']}, but this app recovers by replay",
                f"{with_changes}{facts.alter(topic.name, 'cleanup.policy=delete')}",
            )


CHECKS.append(keyed_alike)


@_check("replication")
def durability(facts: DoctorFacts) -> Found:
    """Check that the loss of one broker loses no committed record and stops nothing."""
    count = len(facts.brokers)
    wanted = min(BROKERS_MIN, count)
    for topic in facts.existing(*facts.inputs, *facts.outputs, *facts.own):
        if topic.replication_factor < wanted:
            yield (
                topic.name,
                f"replication factor {topic.replication_factor} with {counted(count, 'broker')}",
                facts.replicate(topic.name, wanted),
            )
    for topic in facts.existing(*facts.inputs, *facts.outputs, *facts.own, TRANSACTION_TOPIC):
        yield from _in_sync_minimum(facts, topic)
        if topic.config.get("unclean.leader.election.enable") == "true":
            why = "if a lagging replica becomes leader, committed records are lost"
            yield _to_alter(facts, topic, "unclean.leader.election.enable", "false", why)


def _in_sync_minimum(facts: DoctorFacts, topic: TopicFacts) -> Found:
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
    yield (topic.name, problem, facts.alter(topic.name, f"min.insync.replicas={wanted}"))


@_check("replication")
def replicas(facts: DoctorFacts) -> Found:
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
        yield (
            str(partition),
            problem,
            "start these brokers and wait until they have caught up. Until then this finding is listed by"
            f" `snapreplay doctor {facts.app_name}`",
        )


@_check("record sizes")
def record_sizes(facts: DoctorFacts) -> Found:
    """Check that our largest records fit into the topics."""
    chunk_bytes = facts.settings.snapshot.chunk_bytes_max + RECORD_FRAME_BYTES
    for topic in facts.existing(*facts.own[:2]):
        needed = max(RECORD_BYTES_NEEDED, chunk_bytes)
        if _message_bytes(topic) < needed:
            yield (
                topic.name,
                f"max.message.bytes={_message_bytes(topic)}, but our records need {needed}",
                facts.alter(topic.name, f"max.message.bytes={DEFAULT_LIMIT_BYTES}"),
            )
    yield from _dead_letter_sizes(facts)


def _dead_letter_sizes(facts: DoctorFacts) -> Found:
    largest = max((_message_bytes(topic) for topic in facts.existing(*facts.inputs)), default=0)
    for topic in facts.existing(*(name for name in facts.own[2:] if name not in facts.internal)):
        if _message_bytes(topic) < largest:
            yield (
                topic.name,
                f"max.message.bytes={_message_bytes(topic)}, but an input takes {largest}: a large record would"
                " be dead-lettered without its value",
                facts.alter(topic.name, f"max.message.bytes={largest}"),
            )


def _message_bytes(topic: TopicFacts) -> int:
    return int(topic.config.get("max.message.bytes", DEFAULT_LIMIT_BYTES))


AGE_SHARE_MAX = 0.5  # how old the newest snapshot may be, as a share of the input's retention


@_check("recovery")
def recoverable(facts: DoctorFacts) -> Found:
    """Check that a recovery would succeed now with what is in the topics."""
    for state in facts.states:
        where = f"partition {state.partition}"
        if state.missing is not None:
            yield (where, f"a recovery would fail: {state.missing}", _way_back(facts, state))
        elif state.batch is None:
            yield (
                where,
                "holds no increment, not even the genesis",
                _way_back(facts, state)
                if state.partition in facts.owned
                else f"if the app is new, `snapreplay init {facts.app_name}`. Otherwise its increments are lost: bring"
                f" the topic back, or `snapreplay run {facts.app_name}`, whose hint says what can be"
                f" accepted{facts.or_savepoint()}",
            )
        elif state.unusable is not None:
            yield (where, state.unusable, _snapshot(facts, state.partition))


@_check("pause")
def paused(facts: DoctorFacts) -> Found:
    """Check that nobody has paused a partition, and forgotten it."""
    for state in facts.states:
        if state.paused is not None:
            yield (
                f"partition {state.partition}",
                f"paused since {time_of(state.paused.since_ms):%Y-%m-%d %H:%M:%S} UTC:"
                f" {state.paused.reason or NO_REASON}; nothing of it is processed, whoever owns it",
                f"when that is over, `snapreplay resume --partition {state.partition} --wait`",
            )


@_check("cluster")
def same_cluster(facts: DoctorFacts) -> Found:
    """Check that the chains began in this cluster: the offsets that they record mean nothing in another one."""
    found = _of_other_clusters(facts)
    for cluster_id in sorted(set(found.values())):
        numbers = [number for number, other in found.items() if other == cluster_id]
        yield (
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


@_check("topic ids")
def same_topics(facts: DoctorFacts) -> Found:
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
        yield (
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


@_check("snapshot age")
def snapshot_age(facts: DoctorFacts) -> Found:
    """Check that snapshots are younger than the input's retention, if only a replay brings one forward."""
    if not facts.by_replay:
        return
    for topic in facts.existing(*facts.inputs):
        retained_ms = _retained_ms(topic)
        for state in facts.states:
            if retained_ms is None or state.snapshot_at_ms is None:
                continue
            age_ms = facts.now_ms - state.snapshot_at_ms
            if age_ms > AGE_SHARE_MAX * retained_ms:
                yield (
                    f"partition {state.partition}",
                    f"its newest snapshot is {_hours(age_ms)} old, but input {topic.name} keeps {_hours(retained_ms)}"
                    f" (retention.ms={retained_ms}): the records after the snapshot will be deleted",
                    f"{_snapshot(facts, state.partition)}; and {facts.alter(topic.name, f'retention.ms={2 * age_ms}')},"
                    f" or `--set snapshot.every_seconds={max(1, retained_ms // 4000)}`",
                )


def _way_back(facts: DoctorFacts, state: StateSeen) -> str:
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


@_check("record times")
def record_times(facts: DoctorFacts) -> Found:
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
        yield (
            topic.name,
            f"input {oldest_input} is at records that are {_hours(age_ms)} old, but {topic.name} keeps"
            f" {_hours(retained_ms)} (retention.ms={retained_ms}): "
            + (
                "they are deleted before they are read"
                if topic.name in facts.inputs
                else "outputs have the times of their records, and are deleted at once"
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


class DoctorReport(msgspec.Struct, frozen=True):
    """The report; `looked_at` counts what was examined: "no findings" alone could mean that nothing was. `not_read`: a
    sentence for each topic that matches a pattern and belongs to another app, which is in order."""

    app_id: str | None
    looked_at: dict[str, int]
    findings: list[Diagnosis]
    seconds: float
    not_read: list[str] = []


def report_of(facts: DoctorFacts, seconds: float) -> DoctorReport:
    return DoctorReport(
        facts.app.app_id if facts.app else None,
        {
            "checks": len(CHECKS),
            "brokers": len(facts.brokers),
            "topics": len(facts.topics),
            "partitions": len(facts.logs),
            "states": len(facts.states),
        },
        [_shown(each, facts) for each in (*facts.refusals, *(found for check in CHECKS for found in check(facts)))],
        round(seconds, 3),
        list(facts.left_out.values()),
    )


def _shown(finding: Diagnosis, facts: DoctorFacts) -> Diagnosis:
    """Give the commands in a remedy the options with which this command reached its cluster."""
    return msgspec.structs.replace(finding, remedy=addressed(finding.remedy, facts.settings))
