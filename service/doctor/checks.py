"""All checks of the facts, and the report of their findings. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from snapreplay.app import names
from snapreplay.app.ways import beyond_an_older_disk
from snapreplay.counted import counted
from snapreplay.errors import StopError, UsageError
from snapreplay.service.core import inspected
from snapreplay.service.core.inspected import OpenTransaction, TopicChange, changes
from snapreplay.service.core.partitioners import HASHES, MURMUR2, misplaced, shown_key
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts, Log, StateSeen, partitions
from snapreplay.service.kafka.errors import principal_of
from snapreplay.service.ports import TopicFacts
from snapreplay.service.topics import requirements
from snapreplay.snapshots.format.records import NO_REASON
from snapreplay.times import time_text

Found = Iterator[tuple[str, str, str]]
"""What is wrong: where, the problem with its values, the remedy."""
Check = Callable[[DoctorFacts], Iterator[Diagnosis]]
CHECKS: list[Check] = []
"""All checks, in the order of the report."""

BROKERS_MIN = 3
IDEMPOTENT_WRITES = "idempotent writes"
OPEN_MS_MAX = 60_000
"""How long another program's transaction in an input or output may be open. Its readers wait for that long."""


def _check(name: str) -> Callable[[Callable[[DoctorFacts], Found]], Check]:
    """Register a check: what it finds becomes findings of this name."""

    def registered(look: Callable[[DoctorFacts], Found]) -> Check:
        def check(facts: DoctorFacts) -> Iterator[Diagnosis]:
            return (Diagnosis(name, *found) for found in look(facts))

        CHECKS.append(check)
        return check

    return registered


@_check("brokers")
def brokers(facts: DoctorFacts) -> Found:
    """Check that there are enough brokers, each reachable at its advertised address and new enough."""
    if len(facts.brokers) < BROKERS_MIN:
        yield (
            "cluster",
            f"{counted(len(facts.brokers), 'broker')}: if one fails, there is no second copy of the data, or no quorum",
            f"start the missing brokers: run at least {BROKERS_MIN}; one is enough for development",
        )
    for broker in facts.brokers:
        where = f"broker {broker.node_id} at {broker.address}"
        if not broker.reachable:
            yield (
                where,
                "the cluster advertises it, but it cannot be reached from here",
                "start it; or correct its advertised.listeners, DNS or the firewall: after the first contact clients"
                " connect to this address",
            )
        elif broker.missing:
            yield (
                where,
                f"does not support the required version of {', '.join(broker.missing)}",
                "upgrade the broker (Kafka 3.0 or newer), or snapreplay",
            )


@_check("timeout limits")
def timeout_limits(facts: DoctorFacts) -> Found:
    """Check that the brokers accept the timeouts of our transactions and sessions."""
    for found in (
        inspected.transaction_timeout(facts.settings.timeouts.transaction_ms, facts.broker_config),
        inspected.session_timeout(facts.settings.group.session_timeout_ms, facts.broker_config),
    ):
        if found is not None:
            yield found.setting, found.problem, found.remedy


@_check("access")
def access(facts: DoctorFacts) -> Found:
    """Name what this user may not do, with the ACL that allows it. The partitions' transactional ids are one."""
    app_id = facts.app.app_id if facts.app else ""
    owners = [what for what in facts.refused if what.rpartition("-")[0] == app_id and what[len(app_id) + 1 :].isdigit()]
    for what, reason in facts.refused.items():
        if what in owners[1:]:
            continue
        where = f"group {app_id}" if what == app_id else what
        if what in owners and len(owners) > 1:
            where += f" and {len(owners) - 1} more"
        yield where, f"this user is refused: {reason}", _acl(facts, what)


def _acl(facts: DoctorFacts, what: str) -> str:
    app_id = facts.app.app_id if facts.app else what
    if what == IDEMPOTENT_WRITES:
        operation = "IdempotentWrite --cluster"
    elif what in (*facts.outputs, *facts.own):
        operation = f"Write --topic {what}"
    elif what == app_id:
        operation = f"Read --group {app_id}"
    else:
        operation = f"Write --transactional-id {app_id} --resource-pattern-type prefixed"
    principal = principal_of(facts.settings) or "User:NAME"  # a certificate has its own
    return f"kafka-acls.sh {facts.to_cluster} --add --allow-principal {principal} --operation {operation}"


@_check("open transaction")
def pinned(facts: DoctorFacts) -> Found:
    """Check that no open transaction hides committed records: the last stable offset is below the high watermark. In
    our own topics another program's transaction is wrong at once: it hides our claims and increments."""
    for log in facts.logs:
        opened = log.pinned_by
        if opened is not None and log.held_back > 0 and _is_too_long(facts, log, opened):
            yield (
                str(log.partition),
                f"last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}: {log.held_back}"
                f" offsets are held back by {_owner_of(facts, opened)}",
                _pin_remedy(facts, log, opened),
            )


def _is_too_long(facts: DoctorFacts, log: Log, opened: OpenTransaction) -> bool:
    if opened.transactional_id is None or opened.started_at_ms is None:
        return True
    owner_id = names.transactional_id(facts.app.app_id, log.partition.partition) if facts.app else ""
    is_ours = opened.transactional_id == owner_id
    if log.partition.topic in facts.own and not is_ours:
        return True
    longest_ms = facts.settings.timeouts.transaction_ms if is_ours else OPEN_MS_MAX
    return facts.now_ms - opened.started_at_ms > longest_ms


def _owner_of(facts: DoctorFacts, opened: OpenTransaction) -> str:
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


@_check("transactions")
def stuck(facts: DoctorFacts) -> Found:
    """Check that the coordinators can end the owners' open transactions. Until then no process can fence."""
    if facts.app is None or not facts.stuck:
        return
    app_id, first = facts.app.app_id, min(facts.stuck)
    seen = facts.stuck[first]
    yield (
        partitions(sorted(facts.stuck)),
        f"the coordinator cannot end the last transaction of {names.transactional_id(app_id, first)} ({seen.state},"
        f" epoch {seen.producer_epoch}): until it does, no process can own the partition",
        f"start the brokers that are down. If none is down, {beyond_an_older_disk(app_id)}",
    )


@_check("topics")
def existence(facts: DoctorFacts) -> Found:
    """Check that every topic of the app exists."""
    missing = [name for name in (*facts.input_topics, *facts.outputs, *facts.own) if name not in facts.topics]
    pair = [name for name in facts.own[:2] if name in missing]
    ensure = f"`snapreplay topics ensure {facts.app_name}"
    for name in dict.fromkeys(missing):
        if name not in facts.own:
            yield name, "does not exist, or this user may not see it", f"{ensure} --partitions N`"
        elif name in pair and facts.members:
            yield (
                name,
                f"does not exist while the group has {counted(facts.members, 'process')} of the app: their memory may"
                " hold the only copy of what was in it",
                f"{ensure}`: they then write it by themselves. Do not stop any of them before",
            )
        elif facts.app is not None and pair == [name]:
            lost = requirements.incomplete(facts.app, name)
            yield name, lost.message, lost.hint + facts.or_savepoint()
        elif name in facts.internal and any(name in state.topic_ids for state in facts.states):
            yield (
                name,
                "no longer exists: records that were sent to it and not handled are lost",
                f"restore it from a backup or mirror, with its old offsets; or {ensure}`, then `snapreplay run"
                f" {facts.app_name}`, whose hint says what can be accepted",
            )
        else:
            init = f", then `snapreplay init {facts.app_name}`{facts.or_savepoint(own_are_gone=True)}" if pair else ""
            yield name, "does not exist, or this user may not see it", f"{ensure}`{init}"


@_check("requirements")
def as_at_a_start(facts: DoctorFacts) -> Found:
    """Check what a start checks: partition counts, settings of the app's own topics, and whether inputs can be
    replayed; and which topics of a pattern are not read."""
    app, topics = facts.app, facts.topics
    if app is None or not any(facts.existing(*facts.input_topics, *facts.own[:1])):
        return
    differ = list(_refused(facts, requirements.partition_count, app, topics, None, facts.recorded_inputs))
    yield from differ
    if not differ:
        count = requirements.partition_count(app, topics, None, facts.recorded_inputs)
        for topic in facts.existing(*facts.own[:2]):
            yield from _refused(facts, requirements.check_own_topic, app, topic, count)
        yield from _refused(facts, requirements.check_internal_topics, app, topics, count)
    inputs = list(facts.existing(*facts.input_topics))
    yield from _refused(facts, requirements.check_replayable, facts.settings, inputs)
    for name, problem in requirements.misfits_of(app, facts.settings, topics, facts.partition_count).items():
        if name not in facts.recorded_inputs and topics[name].denied is None:
            fitting = f"a topic with {counted(facts.partition_count, 'partition')} whose name matches"
            yield (
                name,
                problem,
                f"to read it, copy its records to {fitting}; otherwise narrow the pattern in App(inputs=[…])",
            )
    for name, problem in requirements.left_out(app, topics, facts.recorded_inputs).items():
        yield name, problem, "declare it in App(inputs=[…]), or narrow the pattern so that it does not match"


def _refused(facts: DoctorFacts, check: Callable[..., object], *arguments: object) -> Found:
    """Yield the error of a check of a start, if it raises one."""
    try:
        check(*arguments)
    except (UsageError, StopError) as error:
        servers = ",".join(facts.settings.bootstrap_servers)
        yield f"app {facts.app.app_id if facts.app else ''}", error.message, error.hint.replace("HOST:PORT", servers)


KEYS_MIN = 10
"""Distinct keys that show the hash of an input. By chance 10 keys in two partitions fit once in 1,024."""
SHARE_MIN = 0.9
"""The share of the keys that must fit: some were written before the topic got more partitions."""
APART_MIN = 0.25
"""The share of the keys of two inputs that lie in different partitions. Other hashes put half of them apart in a topic
of two partitions, and more in larger ones."""


@_check("keys")
def keyed_alike(facts: DoctorFacts) -> Found:
    """Check that producers of several inputs put a key into the same partition. One input alone may be partitioned in
    any way, and so may all of them if it is the same way."""
    keys = {topic: found for topic, found in facts.keys.items() if found and topic in facts.topics}
    declared = [each for topic, found in keys.items() for each in _not_as_declared(facts, topic, found)]
    yield from declared
    if len(keys) < 2:
        return
    counts = {topic: facts.topics[topic].partition_count for topic in keys}
    hashes = {topic: _hash_of(found, counts[topic]) for topic, found in keys.items()}
    by_murmur2 = [topic for topic, name in hashes.items() if name == MURMUR2]
    for topic, name in hashes.items():
        if topic in facts.internal or any(where == topic for where, *_ in declared):
            continue
        others = [each for each in by_murmur2 or keys if each != topic]
        proof = _in_two_partitions(topic, others, keys)
        # An input whose records get other keys in an internal topic may be hashed in any way.
        lies_elsewhere = not facts.internal and name is not None and (bool(by_murmur2) or _differ(name, others, hashes))
        if name != MURMUR2 and (proof or lies_elsewhere):
            by = f", as {HASHES[name].used_by} does ({name})" if name else ""
            yield (
                topic,
                f"its producer puts keys into other partitions than those of the other inputs{by}:"
                f" {proof or _misplaced(keys[topic], counts[topic])}. A handler does not find the entry that another"
                " input has stored under such a key: each partition has its own state",
                "set `partitioner=murmur2_random` in a producer that uses librdkafka, or Java's default partitioner in"
                " any other one. Existing records stay where they are: copy them to a new topic with unchanged keys,"
                " and name that topic in App(inputs=[…])",
            )


def _not_as_declared(facts: DoctorFacts, topic: str, keys: Mapping[bytes, int]) -> Found:
    """Name a topic with keys where the partitioner that the app declares for it does not put them."""
    found = facts.app.declaration(topic) if facts.app else None
    if found is None or found.partitioner is None:
        return
    count, name = facts.topics[topic].partition_count, found.partitioner
    proofs = [proof for key, at in sorted(keys.items()) if (proof := misplaced(key, at, count, name))]
    if proofs:
        yield (
            topic,
            f"its producer does not partition by {name}, as the app declares: {proofs[0]}; so do {len(proofs)} of"
            f" {len(keys)} keys that were sampled",
            f"set its producer's partitioner to {name}; or declare its partitioner, if no other input has the same"
            " keys. Existing records stay where they are: copy them to a new topic",
        )


def _hash_of(keys: Mapping[bytes, int], count: int) -> str | None:
    """Return the hash by which the keys lie where they do, "" for none of those known; None: there are too few keys to
    say."""
    if len(keys) < KEYS_MIN:
        return None
    for name, each in HASHES.items():
        if sum(each.partition(key, count) == at for key, at in keys.items()) >= SHARE_MIN * len(keys):
            return name
    return ""


def _differ(name: str, others: list[str], hashes: Mapping[str, str | None]) -> bool:
    return name != "" and any(hashes[each] not in (name, "", None) for each in others)


def _in_two_partitions(topic: str, others: list[str], keys: Mapping[str, Mapping[bytes, int]]) -> str:
    """Name a key that another input has in another partition; "": too few of their common keys differ."""
    for other in others:
        both = keys[topic].keys() & keys[other].keys()
        apart = sorted(key for key in both if keys[topic][key] != keys[other][key])
        if apart and len(apart) >= APART_MIN * len(both):
            key = apart[0]
            here, there = keys[topic][key], keys[other][key]
            return f"key {shown_key(key)} is in partition {here}, but in partition {there} of {other}"
    return ""


def _misplaced(keys: Mapping[bytes, int], count: int) -> str:
    elsewhere = {key: at for key in sorted(keys) if (at := HASHES[MURMUR2].partition(key, count)) != keys[key]}
    key, at = next(iter(elsewhere.items()))
    return (
        f"key {shown_key(key)} is in partition {keys[key]}, but murmur2 gives partition {at}; {len(elsewhere)} of"
        f" {len(keys)} sampled keys are in other partitions than murmur2 gives"
    )


@_check("replication")
def durability(facts: DoctorFacts) -> Found:
    """Check that the loss of one broker loses no committed record and stops nothing."""
    count = len(facts.brokers)
    wanted = min(BROKERS_MIN, count)
    for topic in facts.existing(*facts.input_topics, *facts.outputs, *facts.own, TRANSACTION_TOPIC):
        if topic.replication_factor < wanted:
            yield (
                topic.name,
                f"replication factor {topic.replication_factor} with {counted(count, 'broker')}",
                f"add replicas with kafka-reassign-partitions.sh, until each partition has {wanted}",
            )
        if problem := _in_sync_problem(topic):
            least = max(1, topic.replication_factor - 1)
            yield topic.name, problem, facts.alter(topic.name, f"min.insync.replicas={least}")
        if topic.config.get("unclean.leader.election.enable") == "true":
            yield (
                topic.name,
                "unclean.leader.election.enable=true: if a lagging replica becomes leader, committed records are lost",
                facts.alter(topic.name, "unclean.leader.election.enable=false"),
            )


def _in_sync_problem(topic: TopicFacts) -> str:
    factor, least = topic.replication_factor, int(topic.config.get("min.insync.replicas", "1"))
    if factor >= BROKERS_MIN and least < 2:
        return f"min.insync.replicas={least}: a write is acknowledged with one copy"
    if least >= factor > 1:
        return f"min.insync.replicas={least} of {counted(factor, 'replica')}: without one broker every write fails"
    if least > factor:
        return f"min.insync.replicas={least} with {counted(factor, 'replica')}: older brokers refuse every write"
    return ""


@_check("replication")
def replicas(facts: DoctorFacts) -> Found:
    """Check that every partition has a leader, and that all its replicas follow."""
    for partition, seen in sorted(facts.replicas.items()):
        behind = sorted(set(seen.replicas) - set(seen.in_sync))
        if seen.leader < 0:
            problem = f"no leader: none of its replicas {list(seen.replicas)} is running"
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


@_check("recovery")
def recoverable(facts: DoctorFacts) -> Found:
    """Check that a recovery would succeed now with what is in the topics."""
    for state in facts.states:
        where, is_owned = f"partition {state.partition}", state.partition in facts.owned
        snapshot = f"`snapreplay trigger-snapshot --partition {state.partition} --wait`"
        if state.missing is not None:
            yield where, f"a recovery would fail: {state.missing}", _way_back(facts, state, snapshot)
        elif state.batch is None and is_owned:
            yield where, "holds no increment, not even the genesis", _way_back(facts, state, snapshot)
        elif state.batch is None:
            yield (
                where,
                "holds no increment, not even the genesis",
                f"if the app is new, `snapreplay init {facts.app_name}`. Otherwise its increments are lost: restore the"
                f" topic, or `snapreplay run {facts.app_name}`, whose hint says what can be"
                f" accepted{facts.or_savepoint()}",
            )
        elif state.unusable is not None:
            first = "" if is_owned else f"`snapreplay run {facts.app_name}`, then "
            yield where, state.unusable, first + snapshot


def _way_back(facts: DoctorFacts, state: StateSeen, snapshot: str) -> str:
    """Say what to do: a process with the state in memory can write it again; otherwise only what is left can be
    accepted."""
    if state.partition not in facts.owned:
        return f"`snapreplay run {facts.app_name}`: its hint says what can be accepted"
    if state.snapshot_helps:
        return (
            f"{snapshot} while the owner of the partition is running. Do not restart it before that: its memory may"
            " hold the only copy"
        )
    return "`snapreplay restore-status` on the owner of the partition: the hint there says what can be accepted"


@_check("pause")
def paused(facts: DoctorFacts) -> Found:
    """Name the partitions that are paused: somebody may have forgotten it."""
    for state in facts.states:
        if state.paused is not None:
            yield (
                f"partition {state.partition}",
                f"paused since {time_text(state.paused.since_ms)}:"
                f" {state.paused.reason or NO_REASON}; it is not processed by any process",
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
    found: dict[TopicChange, set[int]] = {}
    elsewhere = _of_other_clusters(facts)  # there each topic has another id
    for state in facts.states:
        for change in changes((*facts.inputs, *facts.own[:2]), state.topic_ids, now):
            if change.found_id is not None and state.partition not in elsewhere:
                of_topic = change._replace(topic=names.place_of_input(change.topic, 0)[0])
                found.setdefault(of_topic, set()).add(state.partition)
    shrunk = dict(_shrunk(facts))
    for name, missing in shrunk.items():
        has = counted(facts.topics[name].partition_count, "partition")
        yield (
            name,
            f"has {has}, but {partitions(missing)} of it {'was' if len(missing) == 1 else 'were'} read: it was created"
            " again, unless a broker lags behind",
            "restore it from a backup, with all partitions and its old offsets; or take the table out of the app and"
            f" run `snapreplay inputs {facts.app_name} --leave-records`",
        )
    for change, numbers in found.items():
        if change.topic in shrunk:
            continue
        yield (
            change.topic,
            f"was deleted and created again: {partitions(sorted(numbers))} recorded id {change.recorded_id}, the topic"
            f" now has id {change.found_id}",
            _remade(facts, change.topic),
        )


def _shrunk(facts: DoctorFacts) -> Iterator[tuple[str, list[int]]]:
    """Return the topics of broadcast tables without partitions that were read, and these."""
    recorded = {names.place_of_input(name, 0) for state in facts.states for name in state.topic_ids}
    for topic in facts.existing(*(facts.app.broadcast_names if facts.app else ())):
        if missing := sorted(each for name, each in recorded if name == topic.name and each >= topic.partition_count):
            yield topic.name, missing


def _remade(facts: DoctorFacts, topic: str) -> str:
    if topic in facts.input_topics:
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
        "restore its records, with their offsets, from a backup or mirror; or"
        f" `snapreplay run {facts.app_name}`, whose hint says what can be accepted"
    )


@_check("record times")
def record_times(facts: DoctorFacts) -> Found:
    """Check that Kafka does not delete records early: it goes by their own timestamps, so that what is older than
    retention.ms goes at the next check."""
    # Without a timestamp Kafka goes by the file's time.
    seen = [
        (at_ms, names.place_of_input(name, 0)[0])
        for state in facts.states
        for name, at_ms in state.timestamps_ms.items()
        if at_ms >= 0
    ]
    if not seen:
        return
    oldest_ms, oldest_input = min(seen)
    age_ms = facts.now_ms - oldest_ms
    for topic in facts.existing(oldest_input, *facts.outputs):
        retained_ms = _retained_ms(topic)
        if (
            retained_ms is None
            or age_ms <= retained_ms
            or topic.config.get("message.timestamp.type") == "LogAppendTime"
        ):
            continue
        what = (
            "they are deleted before they are read"
            if topic.name == oldest_input
            else "outputs have the times of their records, and are deleted at once"
        )
        yield (
            topic.name,
            f"input {oldest_input} is at records that are {age_ms / 3_600_000:.1f} h old, but {topic.name} keeps"
            f" {retained_ms / 3_600_000:.1f} h (retention.ms={retained_ms}): {what}",
            facts.alter(topic.name, "retention.ms=-1")
            + "; or set message.timestamp.type=LogAppendTime before the records are written",
        )


@_check("tables")
def tables(facts: DoctorFacts) -> Found:
    """Check that Kafka keeps the rows of tables: what begins later, as after a reset, reads them again."""
    wanted = ",".join(f"{name}={value}" for name, value in requirements.table_config(facts.settings).items())
    for topic in facts.existing(*facts.input_topics):
        limits = [name for name in ("retention.ms", "retention.bytes") if int(topic.config.get(name, "-1")) >= 0]
        deletes = "delete" in topic.config.get("cleanup.policy", "delete")
        if facts.app is not None and facts.app.is_table(topic.name) and deletes and limits:
            yield (
                topic.name,
                f"it is a table, and its rows are deleted after a while ({limits[0]}={topic.config[limits[0]]}): after"
                " a reset, in a new app or in a new partition it would be incomplete",
                facts.alter(topic.name, wanted),
            )


def _retained_ms(topic: TopicFacts) -> int | None:
    retained_ms = int(topic.config.get("retention.ms", "-1"))
    return retained_ms if retained_ms >= 0 and "delete" in topic.config.get("cleanup.policy", "delete") else None


class DoctorReport(msgspec.Struct, frozen=True):
    """The report; `looked_at` counts what was examined: "no findings" alone could mean that nothing was."""

    app_id: str | None
    looked_at: Mapping[str, int]
    findings: list[Diagnosis]
    seconds: float


def report_of(facts: DoctorFacts, seconds: float) -> DoctorReport:
    found = [*facts.refusals, *(each for check in CHECKS for each in check(facts))]
    return DoctorReport(
        facts.app.app_id if facts.app else None,
        {
            "checks": len(CHECKS),
            "brokers": len(facts.brokers),
            "topics": sum(not requirements.is_broadcast(name) for name in facts.topics),
            "partitions": len(facts.logs),
            "states": len(facts.states),
        },
        found,
        round(seconds, 3),
    )
