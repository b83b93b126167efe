"""Collects the facts for the checks. What cannot be examined is noted; the rest is examined anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.errors import DamagedError, RebuildError, SnapreplayError, UnknownFormatError
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import EndingTransaction, OpenTransaction
from snapreplay.service.core.recoverability import Recoverability, outlook
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.doctor.checks import DoctorReport, report_of
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts, Log, StateSeen
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.log_bounds import way_back
from snapreplay.service.topics.reading import newest, reading
from snapreplay.service.topics.requirements import is_broadcast, with_broadcast
from snapreplay.service.topics.savepoint_names import names_in
from snapreplay.service.topics.snapshots import load_manifest, newest_of_owner
from snapreplay.snapshots.format.chunks import open_chunk
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import LogStarts

K = TypeVar("K")
T = TypeVar("T")

LOOK_AGAIN_SECONDS = 1.0
SAMPLED_PARTITIONS, SAMPLED_RECORDS = 64, 32
"""Partitions of all inputs together whose keys are sampled, and records of each."""


async def lasting(look: Callable[[Collection[K]], Awaitable[dict[K, T]]], among: Collection[K]) -> dict[K, T]:
    """Return what `look` finds twice, a second apart: a running owner has a transaction open most of the time, but
    never the same one for this long."""
    first = await look(among)
    if not first:
        return {}
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return {each: found for each, found in (await look(first)).items() if first[each] == found}


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
    timeouts = settings.timeouts.replaced(metadata_ms=wait_ms, progress_ms=wait_ms)
    return settings.replaced(timeouts=timeouts)


class Collector:
    """Collects the facts once."""

    def __init__(self, app: App[Any] | None, settings: Settings, ask: KafkaDiagnostics) -> None:
        self._ask = ask
        self._cluster = KafkaCluster(impatient(settings))
        self._refusals: list[Diagnosis] = []
        self._facts = DoctorFacts(settings, wall_ms(), (), app)

    async def collect(self) -> DoctorFacts:
        """Collect the facts, or raise Unreachable or NotAuthorized: the brokers could not even be listed."""
        self._know(brokers=tuple(await self._ask.brokers()))
        cluster = await self._try("asking for its settings", "cluster", self._cluster.facts())
        if cluster is not None:
            self._know(broker_config=cluster.broker_config, cluster_id=cluster.cluster_id)
        app = self._facts.app
        every = await self._try("listing topics", "cluster", self._cluster.topic_names()) if app else ()
        matching = [name for name in every or () if app and app.patterns and app.declaration(name)]
        self._know(savepoints=tuple(names_in(app.app_id, every or ())) if app else ())
        wanted = (*self._facts.input_topics, *self._facts.outputs, *self._facts.own, TRANSACTION_TOPIC)
        topics = await self._try("describing topics", "cluster", self._cluster.topics(wanted, matching))
        self._know(topics=with_broadcast(app, dict(topics or {})) if app else topics or {})
        self._refusals += [
            Diagnosis("access", each.name, each.denied.message, each.denied.hint or "")
            for each in self._facts.topics.values()
            if each.denied is not None
        ]
        replicas = await self._try("describing topics", "cluster", self._ask.replicas((*wanted, *matching)))
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
            found, app = f"{what}: {error.message}", self._facts.app_name
            refusal = Diagnosis(
                "access", where, found, error.hint or f"run `snapreplay doctor {app}` again when the brokers answer"
            )
            self._refusals.append(refusal)
            return None

    async def _permissions(self, app_id: str) -> None:
        """Try what the service does, as far as that leaves no trace."""
        facts = self._facts
        written = [TopicPartition(topic.name, 0) for topic in facts.existing(*facts.outputs, *facts.own)]
        count = max((topic.partition_count for topic in facts.existing(*facts.own[:1])), default=0)
        owners = {
            names.transactional_id(app_id, number): TopicPartition(facts.own[0], number) for number in range(count)
        }
        asking = self._ask.refused(app_id, owners)
        refused = await self._try("asking for permissions", f"group {app_id}", asking)
        self._know(stuck=await self._stuck(list(owners)))
        asking_members = self._cluster.group_members(app_id)
        members = await self._try("asking for the members", f"group {app_id}", asking_members)
        owned = frozenset(p.partition for m in members or () for p in m.partitions)
        self._know(owned=owned, members=len(members or ()))
        probing = self._ask.probe(f"{app_id}-doctor", written)
        unwritable = await self._try("probing with an empty transaction", f"{app_id}-doctor", probing)
        self._know(refused={**(refused or {}), **(unwritable or {})})

    async def _stuck(self, ids: list[str]) -> dict[int, EndingTransaction]:
        """Return the partitions whose transaction is still ending a second later."""

        async def ending(some: Collection[str]) -> dict[str, EndingTransaction]:
            asking = self._ask.ending(some)
            return await self._try("asking for the ends of transactions", "transactional ids", asking) or {}

        return {ids.index(each): found for each, found in (await lasting(ending, ids)).items()}

    async def _read(self) -> None:
        async with reading(self._cluster) as committed, reading(self._cluster, read_committed=False) as plain:
            logs = [
                log
                for partition in self._readable()
                if (log := await self._look(committed, plain, partition)) is not None
            ]
            pins = await lasting(self._pins, [log.partition for log in logs if log.held_back > 0])
            self._know(logs=tuple(replace(log, pinned_by=pins.get(log.partition)) for log in logs))
            await self._keys(committed)
            await self._trimming()
            await self._states(committed, plain)

    def _readable(self) -> list[TopicPartition]:
        """Return the partitions that have a leader. The others are findings already."""
        facts = self._facts
        names = {*facts.input_topics, *facts.outputs, *facts.own}
        return sorted(p for p, r in facts.replicas.items() if p.topic in names and r.leader >= 0)

    async def _look(self, committed: Reader, plain: Reader, partition: TopicPartition) -> Log | None:
        async def both() -> Log:
            start_offset, stable = await committed.bounds(partition)
            return Log(partition, start_offset, stable, (await plain.bounds(partition)).end_offset)

        return await self._try("asking for its offsets", str(partition), both())

    async def _pins(self, held_back: Collection[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        nodes = [broker.node_id for broker in self._facts.brokers if broker.reachable]
        found = {}
        for partition in held_back:
            asking = self._ask.open_transaction(partition, self._facts.replicas[partition].leader, nodes)
            opened = await self._try("asking which transaction holds it back", str(partition), asking)
            if opened is not None:
                found[partition] = opened
        return found

    async def _keys(self, committed: Reader) -> None:
        """Sample the keys of the inputs, if there are several, or a partitioner is declared: from the newest records of
        some partitions each."""
        inputs, app = [name for name in self._facts.inputs if not is_broadcast(name)], self._facts.app
        if len(inputs) < 2 and not (app and any(each.partitioner for each in app.inputs)):
            return
        found = dict[str, dict[bytes, int]]()
        for name in inputs:
            logs = [log for log in self._facts.logs if log.partition.topic == name]
            filled = [log for log in logs if log.last_stable_offset > log.start_offset]
            for log in filled[: max(1, SAMPLED_PARTITIONS // len(inputs))]:
                newest_records = newest(committed, log.partition, SAMPLED_RECORDS)
                records = await self._try("sampling its keys", str(log.partition), newest_records)
                keys = found.setdefault(name, {})
                keys |= {record.key: record.partition for record in records or () if record.key}
        self._know(keys=found)

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


class StateReader:
    """A reader of states; `committed` reads the increments topic and the inputs, `plain` the snapshots topic."""

    def __init__(self, facts: DoctorFacts, committed: Reader, plain: Reader) -> None:
        self._facts = facts
        self._committed = committed
        self._plain = plain
        self._bounds = {log.partition: Bounds(log.start_offset, log.last_stable_offset) for log in facts.logs}
        app_id = facts.app.app_id if facts.app else ""
        self._increments = names.increments_topic(app_id)
        self._snapshots = names.snapshots_topic(app_id)

    @property
    def partitions(self) -> list[int]:
        """The partitions of which all topics can be read."""
        needed = (self._increments, self._snapshots, *self._facts.inputs)
        numbers = [p.partition for p in self._bounds if p.topic == self._increments]
        return [n for n in numbers if all(TopicPartition(t, n).real in self._bounds for t in needed)]

    async def state(self, number: int) -> StateSeen:
        """Return the end of this partition's chain, or raise RetryableError: it could not be read."""
        try:
            log = TopicPartition(self._increments, number)
            found = await last_increment(self._committed, log, self._bounds[log])
        except (DamagedError, UnknownFormatError) as error:
            return StateSeen(number, None, missing=error.message)
        if found is None:
            return StateSeen(number, None, topic_ids=await self._in_newest_manifest(number))
        last = found.increment
        unusable = None
        for pointer in last.pointers[:1]:
            try:
                await self._open_snapshot(pointer, number)
            except (RebuildError, UnknownFormatError) as error:
                unusable = f"snapshot {pointer.snapshot_id} cannot be used: {error.message}"
        times = [(topic, await self._timestamp_ms(last, topic, number)) for topic in self._facts.inputs]
        seen = await self._outlook(found, number)
        return StateSeen(
            number,
            last.batch,
            seen.missing,
            snapshot_helps=seen.snapshot_now is not None,
            unusable=unusable,
            timestamps_ms={topic: at_ms for topic, at_ms in times if at_ms is not None},
            topic_ids=last.topic_ids,
            cluster_id=last.genesis.cluster_id,
            paused=last.paused,
        )

    async def _in_newest_manifest(self, number: int) -> Mapping[str, str]:
        log = TopicPartition(self._snapshots, number)
        manifest = await newest_of_owner(self._plain, log, self._bounds[log])
        return manifest.topic_ids if manifest is not None else {}

    async def _open_snapshot(self, pointer: Pointer, number: int) -> None:
        """Raise RebuildError or UnknownFormatError if a snapshot's manifest or first chunk cannot be read."""
        log = TopicPartition(self._snapshots, number)
        manifest = await load_manifest(self._plain, log, pointer)
        for ref in manifest.chunks[:1]:
            record = await self._plain.read_at(log, ref.offset)
            open_chunk((record.value if record else b"") or b"", ref, manifest.snapshot_id)

    async def _timestamp_ms(self, last: Increment, topic: str, number: int) -> int | None:
        source, anchor = TopicPartition(topic, number).real, last.anchors.get(topic)
        start_offset, end_offset = self._bounds[source]
        position = last.positions.get(topic, start_offset)
        async for records in self._committed.read(source, max(position, start_offset), end_offset):
            return records[0].timestamp
        return anchor.timestamp_ms if anchor is not None else None

    async def _outlook(self, found: FoundIncrement, number: int) -> Recoverability:
        """Ask the planner, as a recovery does, with the present log starts."""
        logs = {
            name: TopicPartition(name, number).real for name in (self._increments, self._snapshots, *self._facts.inputs)
        }
        increments, snapshots, *inputs = (self._bounds[log].start_offset for log in logs.values())
        starts = LogStarts(increments, snapshots, dict(zip(self._facts.inputs, inputs, strict=True)))
        return outlook(
            await way_back(
                logs[self._snapshots],
                self._plain,
                found.increment,
                found.offset,
                starts,
                {},
                by_replay=self._facts.by_replay,
            )
        )
