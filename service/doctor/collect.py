"""Collects the facts for the checks. What cannot be examined is noted; the rest is examined anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import EndingTransaction, OpenTransaction
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Facts, Log, Machine, Refusal
from snapreplay.service.doctor.report import DoctorReport, report_of
from snapreplay.service.doctor.states import StateReader
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.config import c_extension_loaded
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics, missing_codecs
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.topics.reading import reading

T = TypeVar("T")

LOOK_AGAIN_SECONDS = 1.0
"""A running owner has a transaction open most of the time, but never the same one for this long."""


async def examine(app: App[Any] | None, settings: Settings) -> DoctorReport:
    """Examine the cluster and, with an app, its topics and state. Writes nothing but the markers of one empty,
    aborted transaction of `<app_id>-doctor`; fences no owner.

    Raises:
        Unreachable, NotAuthenticated: no broker answered, or none let us in.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with KafkaDiagnostics(settings) as ask:
        facts = await Collector(app, settings, ask).collect()
    return report_of(facts, loop.time() - began)


def impatient(settings: Settings) -> Settings:
    """Shorten the deadlines: a partition without a leader is a finding, not worth waiting five minutes for."""
    wait_ms = 3 * settings.request_timeout_ms
    timeouts = settings.timeouts.model_copy(update={"metadata_ms": wait_ms, "progress_ms": wait_ms})
    return settings.model_copy(update={"timeouts": timeouts})


class Collector:
    """Collects the facts once."""

    def __init__(self, app: App[Any] | None, settings: Settings, ask: KafkaDiagnostics) -> None:
        self._ask = ask
        self._cluster = KafkaCluster(impatient(settings))
        self._refusals: list[Refusal] = []
        self._facts = Facts(settings, wall_ms(), (), app)

    async def collect(self) -> Facts:
        """Collect the facts, or raise Unreachable or NotAuthorized: the brokers could not even be listed."""
        self._know(brokers=tuple(await self._ask.brokers()), machine=this_machine())
        cluster = await self._try("asking for its settings", "cluster", self._cluster.facts())
        if cluster is not None:
            self._know(broker_config=cluster.broker_config, cluster_id=cluster.cluster_id)
        wanted = (*self._facts.inputs, *self._facts.outputs, *self._facts.own, TRANSACTION_TOPIC)
        topics = await self._try("describing topics", "cluster", self._cluster.topics(wanted))
        self._know(topics=topics or {})
        replicas = await self._try("describing topics", "cluster", self._ask.replicas(wanted))
        known = {p: r for p, r in (replicas or {}).items() if p.topic in self._facts.topics}
        self._know(replicas=known)
        if self._facts.app is not None:
            await self._permissions(self._facts.app.app_id)
            await self._read()
        self._know(now_ms=wall_ms(), refusals=tuple(self._refusals))
        return self._facts

    def _know(self, **facts: Any) -> None:
        self._facts = replace(self._facts, **facts)

    async def _try(self, what: str, where: str, looking: Awaitable[T]) -> T | None:
        try:
            return await looking
        except SnapreplayError as error:
            self._refusals.append(Refusal(what, where, error.message, error.hint))
            return None

    async def _permissions(self, app_id: str) -> None:
        """Try whatever the service does and that leaves no trace when it has no effect."""
        facts = self._facts
        written = [
            TopicPartition(topic.name, 0) for topic in facts.existing(*facts.outputs, *facts.own)
        ]
        count = max((topic.partition_count for topic in facts.existing(*facts.own[:1])), default=0)
        owners = {
            names.transactional_id(app_id, number): TopicPartition(facts.own[0], number)
            for number in range(count)
        }
        asking = self._ask.refused(app_id, owners)
        refused = await self._try("asking for permissions", f"group {app_id}", asking)
        self._know(refused=refused or {})
        self._know(stuck=await self._stuck(list(owners)))
        asking_members = self._cluster.group_members(app_id)
        members = await self._try("asking for the members", f"group {app_id}", asking_members)
        owned = frozenset(p.partition for m in members or () for p in m.partitions)
        self._know(owned=owned, members=len(members or ()))
        probing = self._ask.probe(f"{app_id}-doctor", written)
        probe = await self._try("probing with an empty transaction", f"{app_id}-doctor", probing)
        self._know(probe=probe)

    async def _stuck(self, ids: list[str]) -> dict[int, EndingTransaction]:
        """Return the partitions whose transaction is still ending a second later."""
        what, where = "asking for the ends of transactions", "transactional ids"
        first = await self._try(what, where, self._ask.ending(ids)) or {}
        if not first:
            return {}
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        second = await self._try(what, where, self._ask.ending(first)) or {}
        return {ids.index(each): found for each, found in second.items() if first[each] == found}

    async def _read(self) -> None:
        async with (
            reading(self._cluster) as committed,
            reading(self._cluster, read_committed=False) as plain,
        ):
            logs = [
                log
                for partition in self._readable()
                if (log := await self._look(committed, plain, partition)) is not None
            ]
            self._know(logs=await self._with_pins(logs))
            await self._trimming()
            await self._states(committed, plain)

    def _readable(self) -> list[TopicPartition]:
        """Return the partitions that have a leader. The others are findings already."""
        facts = self._facts
        names = {*facts.inputs, *facts.outputs, *facts.own}
        return sorted(p for p, r in facts.replicas.items() if p.topic in names and r.leader >= 0)

    async def _look(
        self, committed: Reader, plain: Reader, partition: TopicPartition
    ) -> Log | None:
        async def both() -> Log:
            start_offset, stable = await committed.bounds(partition)
            return Log(partition, start_offset, stable, (await plain.bounds(partition)).end_offset)

        return await self._try("asking for its offsets", str(partition), both())

    async def _with_pins(self, logs: list[Log]) -> tuple[Log, ...]:
        """Add the transaction that holds a log back, if it is still the same one a second later."""
        first = await self._pins([log for log in logs if log.held_back > 0])
        if not first:
            return tuple(logs)
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        second = await self._pins([log for log in logs if log.partition in first])
        lasting = {p: found for p, found in second.items() if first[p] == found}
        return tuple(replace(log, pinned_by=lasting.get(log.partition)) for log in logs)

    async def _pins(self, logs: list[Log]) -> dict[TopicPartition, OpenTransaction]:
        nodes = [broker.node_id for broker in self._facts.brokers if broker.reachable]
        found = {}
        for log in logs:
            leader = self._facts.replicas[log.partition].leader
            asking = self._ask.open_transaction(log.partition, leader, nodes)
            what = "asking which transaction holds it back"
            opened = await self._try(what, str(log.partition), asking)
            if opened is not None:
                found[log.partition] = opened
        return found

    async def _trimming(self) -> None:
        """Try to trim: DeleteRecords below the first offset deletes nothing, and is refused without the permission."""
        for log in self._facts.logs:
            if log.partition.topic in self._facts.own[:2] and log.partition.partition == 0:
                trimming = self._cluster.delete_records(log.partition, log.start_offset)
                await self._try("trying to trim", log.partition.topic, trimming)

    async def _states(self, committed: Reader, plain: Reader) -> None:
        reader = StateReader(self._facts, committed, plain)
        states = []
        for number in reader.partitions:
            what = "reading the end of its chain"
            seen = await self._try(what, f"partition {number}", reader.state(number))
            states += [seen] if seen is not None else []
        self._know(states=tuple(states))


ROOT = Path("/")
_CGROUP = (  # (limit, used) of version 2, then of version 1
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def this_machine() -> Machine:
    return Machine(c_extension_loaded(), missing_codecs(), available_bytes(ROOT))


def available_bytes(root: Path) -> int | None:
    """Return the memory that may still be allocated: the kernel's estimate or the rest of the container's limit,
    whichever is less; None if neither can be read. `root`: where /proc and /sys are."""
    found = [_from_kernel(root / "proc/meminfo")]
    found += [_left(root / limit, root / used) for limit, used in _CGROUP]
    return min((each for each in found if each is not None), default=None)


def _from_kernel(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _left(limit: Path, used: Path) -> int | None:
    try:
        return max(0, int(_text(limit)) - int(_text(used)))
    except ValueError:  # "max", or no such file
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
