"""Brokers, transactions, permissions and this installation. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.app import names
from snapreplay.app.ways import beyond_an_older_disk
from snapreplay.counted import counted
from snapreplay.service.core import broker_limits
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts, Log, partitions

BROKERS_MIN = 3
IDEMPOTENT_WRITES = "idempotent writes"
CLOCK_SKEW_MS_MAX = 2000
ID_EXPIRATION_MS_MIN = 3_600_000
OPEN_MS_MAX = 60_000  # of a transaction in an input or output: its readers wait for that long
ENTRY_OVERHEAD_BYTES = 170  # of a key and its value in the state: two bytes objects and their places (measured)


_QUOTAS_MIN = {
    "producer_byte_rate": (2.0**20, "less than the largest batch of a second is written; outputs come later and later"),
    "consumer_byte_rate": (2.0**20, "inputs, and the snapshots of a restore, are read at this many bytes a second"),
    "request_percentage": (25.0, "each request waits for up to a second, and a batch needs three"),
}
"""Of each quota, below which value it is a finding, and what it does."""


def brokers(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that there are enough brokers, each reachable at its advertised address, all of one version that we
    support."""
    if len(facts.brokers) < BROKERS_MIN:
        yield Diagnosis(
            "brokers",
            "cluster",
            f"{counted(len(facts.brokers), 'broker')}: if one fails, there is no second copy of the data, or no quorum",
            f"start the missing brokers: run at least {BROKERS_MIN}; one is enough for development",
        )
    for broker in facts.brokers:
        where = f"broker {broker.node_id} at {broker.address}"
        if not broker.reachable:
            yield Diagnosis(
                "brokers",
                where,
                "the cluster advertises it, but it cannot be reached from here",
                "start it; or correct its advertised.listeners, DNS or the firewall: clients connect to this address,"
                " whatever kafka.bootstrap.servers says",
            )
        if broker.missing:
            yield Diagnosis(
                "versions",
                where,
                f"does not support our version of {', '.join(broker.missing)}",
                "upgrade the broker (Kafka 3.0 or newer), or snapreplay",
            )
    spoken = [broker.apis for broker in facts.brokers if broker.reachable]
    if any(apis != spoken[0] for apis in spoken):
        yield Diagnosis(
            "versions",
            "cluster",
            "the brokers offer different API versions",
            "finish the rolling upgrade, so that all brokers run the same release",
        )


def timeout_limits(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that the brokers accept our transactions' and our sessions' timeouts, and that ids outlive a quiet hour."""
    timeouts, config = facts.settings.timeouts, facts.broker_config
    found = (
        broker_limits.transaction_timeout(timeouts.transaction_ms, config),
        broker_limits.session_timeout(facts.settings.group.session_timeout_ms, config),
    )
    for each in found:
        if each is not None:
            yield Diagnosis("timeout limits", each.setting, each.problem, each.remedy)
    expiration = facts.broker_config.get("transactional.id.expiration.ms")
    if expiration is not None and int(expiration) < ID_EXPIRATION_MS_MIN:
        yield Diagnosis(
            "timeout limits",
            "brokers",
            f"transactional.id.expiration.ms={expiration}: a partition that has no input for that long must recover"
            " at its next record",
            f"set transactional.id.expiration.ms={7 * 24 * ID_EXPIRATION_MS_MIN} (Kafka's default) on every broker",
        )


def quotas(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that no quota makes the brokers wait with batches, reads and restores."""
    for each in facts.quotas:
        least, told = _QUOTAS_MIN.get(each.name, (0.0, ""))
        if each.value < least:
            yield Diagnosis(
                "quotas",
                each.who,
                f"{each.name}={each.value:g}: {told}",
                f"raise it: `kafka-configs.sh {facts.to_cluster} --alter {each.options} --add-config"
                f" {each.name}={least:.0f}`; or let the app write and read less",
            )


def accidental_topics(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that no topic is created by asking for it: we never do so; other clients may."""
    if facts.broker_config.get("auto.create.topics.enable") == "true":
        yield Diagnosis(
            "accidental topics",
            "brokers",
            "auto.create.topics.enable=true: a client that asks for a deleted topic or a mistyped name creates it, with"
            " the brokers' default retention and partition count",
            "set auto.create.topics.enable=false on every broker",
        )


def clock(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Compare the transaction coordinator's clock with ours. Records carry our time, retention goes by the
    brokers'."""
    probe = facts.probe
    if probe is None or probe.coordinator_ms is None:
        return
    ahead_ms = max(0, probe.coordinator_ms - probe.after_ms)
    behind_ms = max(0, probe.before_ms - probe.coordinator_ms)
    skew_ms = max(ahead_ms, behind_ms)
    if skew_ms > CLOCK_SKEW_MS_MAX:
        yield Diagnosis(
            "clock",
            "transaction coordinator",
            f"its clock is {skew_ms} ms {'ahead of' if ahead_ms else 'behind'} ours",
            "run NTP (chrony) on the brokers and here: `timedatectl` shows whether a clock is synchronised",
        )


def client(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check what the Kafka client here can do."""
    if not facts.machine.c_extension:
        yield Diagnosis(
            "client",
            "aiokafka",
            "runs without its C extension: reading and writing are 20 to 200 times slower",
            "pip install --force-reinstall --only-binary aiokafka aiokafka, on a CPython with the GIL and glibc",
        )
    if facts.machine.missing_codecs:
        yield Diagnosis(
            "client",
            "cramjam",
            f"records compressed with {', '.join(facts.machine.missing_codecs)} cannot be read",
            "pip install --force-reinstall cramjam",
        )


def memory(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that this machine can hold all partitions, as it must when it is the last one left."""
    newest = [state.newest for state in facts.states if state.newest is not None]
    needed = sum(each.raw_bytes + ENTRY_OVERHEAD_BYTES * each.entries for each in newest)
    available = facts.machine.available_bytes
    if available is None or needed <= available:
        return
    yield Diagnosis(
        "memory",
        "this machine",
        f"the state of {counted(len(newest), 'partition')} needs about {_mib(needed)} MiB,"
        f" but only {_mib(available)} MiB are free",
        "raise the memory limit; or run enough processes: each one holds only the partitions assigned to it",
    )


def transaction_log(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check Kafka's own transaction log. Without it nothing commits."""
    for topic in facts.existing(TRANSACTION_TOPIC):
        wanted = min(BROKERS_MIN, len(facts.brokers))
        if topic.replication_factor < wanted:
            yield Diagnosis(
                "transaction log",
                TRANSACTION_TOPIC,
                f"replication factor {topic.replication_factor} with {counted(len(facts.brokers), 'broker')}: if one"
                " broker is lost, every transaction stops or its outcome is forgotten",
                f"{facts.replicate(topic.name, wanted)}; and set"
                f" transaction.state.log.replication.factor={wanted} on every broker",
            )


def _mib(size_bytes: int) -> int:
    return round(size_bytes / 1024 / 1024)


def writes(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Tell what the probe's transaction was not allowed."""
    if facts.probe is None:
        return
    for what, reason in facts.probe.refused.items():
        yield Diagnosis("access", what, f"this user may not write: {reason}", _remedy(facts, what))


def foreign(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that only processes of the app are in its group."""
    if facts.app is not None and facts.foreign is not None:
        yield Diagnosis("group", f"group {facts.app.app_id}", facts.foreign.message, facts.foreign.hint)


def identities(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check the permissions on the app's group and the transactional ids of its partitions: without them no
    partition has an owner."""
    app_id = facts.app.app_id if facts.app else ""
    for what, reason in facts.refused.items():
        if what == app_id:
            remedy = f"{_add(facts)} Read --group {app_id}"
            yield Diagnosis("access", f"group {app_id}", f"this user may not join it: {reason}", remedy)
    ids = [what for what in facts.refused if what != app_id]
    if ids:
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        yield Diagnosis(
            "access",
            ", ".join(ids[:3]) + more,
            f"this user may not use these transactional ids: {facts.refused[ids[0]]}",
            _remedy(facts, ids[0]),
        )


def _add(facts: DoctorFacts) -> str:
    return f"kafka-acls.sh {facts.to_cluster} --add --allow-principal User:NAME --operation"


def _remedy(facts: DoctorFacts, what: str) -> str:
    add = _add(facts)
    if what == IDEMPOTENT_WRITES:
        return f"{add} IdempotentWrite --cluster"
    if what in (*facts.outputs, *facts.own):
        return f"{add} Write --topic {what}"
    app_id = facts.app.app_id if facts.app else what
    return f"{add} Write --transactional-id {app_id} --resource-pattern-type prefixed"


def pinned(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that nothing committed is hidden behind somebody's open transaction (the last stable offset is below
    the high watermark). In our own topics a foreign one is wrong at once: it hides our claims and increments."""
    for log in facts.logs:
        opened = log.pinned_by
        if opened is None or log.held_back <= 0 or not _too_long(facts, log, opened):
            continue
        yield Diagnosis(
            "open transaction",
            str(log.partition),
            f"last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}: {log.held_back}"
            f" offsets are held back by {_who(facts, opened)}",
            _pin_remedy(facts, log, opened),
        )


def stuck(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that the coordinators can end what the owners began. Until then nobody can fence."""
    if facts.app is None or not facts.stuck:
        return
    app_id, first = facts.app.app_id, min(facts.stuck)
    seen = facts.stuck[first]
    yield Diagnosis(
        "transactions",
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
