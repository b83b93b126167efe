"""The cluster as an app with broadcast tables sees it: an input "rates/2" is partition 2 of topic rates, in every
partition of the app. Names and records are translated here, on the way to Kafka and back, and nowhere above."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from snapreplay.app.app import App
from snapreplay.app.names import place_of_input
from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.ports import (
    NO_ANCHORS,
    NO_IDS,
    Bounds,
    Cluster,
    EpochEnd,
    LogBatch,
    Reader,
    TopicFacts,
    TopicPartition,
    TopicWatch,
)
from snapreplay.snapshots.log.reading import of_input


def as_seen_by(app: App[Any], cluster: Cluster) -> Cluster:
    """Return the cluster with the inputs of the app's broadcast tables; without such tables it is the same object."""
    return broadcasting(cluster) if app.broadcast_names else cluster


def broadcasting(cluster: Cluster) -> Cluster:
    """Return the cluster with the inputs of any broadcast table."""
    return cluster if isinstance(cluster, BroadcastCluster) else cast("Cluster", BroadcastCluster(cluster))


def _topic(name: str) -> str:
    return place_of_input(name, 0)[0]


def _by_input(names: Iterable[str], ids: Mapping[str, str]) -> dict[str, str]:
    """Return the id of each input's topic, without those that do not exist."""
    return {name: ids[_topic(name)] for name in names if _topic(name) in ids}


@contextmanager
def _named(places: Iterable[TopicPartition]) -> Iterator[None]:
    """Let the facts of an error name the input, as those who handle it know it."""
    try:
        yield
    except SnapreplayError as error:
        found = error.facts.get("topic"), error.facts.get("partition")
        for each in places:
            if found in (each.real, (each.real.topic, None)):
                error.facts |= {name: value for name, value in each._asdict().items() if name in error.facts}
        raise


class BroadcastReader:
    """A reader, `ports.Reader`, of inputs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._followed: dict[TopicPartition, TopicPartition] = {}  # in Kafka → as the app names it

    def __getattr__(self, name: str) -> Any:
        """Return what names no input."""
        return getattr(self._reader, name)

    async def bounds(self, partition: TopicPartition) -> Bounds:
        return (await self.bounds_of([partition]))[partition]

    async def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        with _named(partitions):
            found = await self._reader.bounds_of([each.real for each in partitions])
        return {each: found[each.real] for each in partitions}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        with _named(partitions):
            found = await self._reader.end_offsets([each.real for each in partitions])
        return {each: found[each.real] for each in partitions if each.real in found}

    async def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        with _named([partition]):
            async for records in self._reader.read(partition.real, start_offset, end_offset):
                yield of_input(records, partition.topic)

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        with _named([partition]):
            found = await self._reader.read_at(partition.real, offset)
        return None if found is None else of_input([found], partition.topic)[0]

    async def first_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        with _named([partition]):
            return await self._reader.first_at(partition.real, timestamp_ms)

    async def batch_below(self, partition: TopicPartition, position: int) -> LogBatch | None:
        with _named([partition]):
            return await self._reader.batch_below(partition.real, position)

    async def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        with _named([partition]):
            return await self._reader.epoch_end(partition.real, leader_epoch)

    async def follow(
        self, positions: Mapping[TopicPartition, int], anchors: Mapping[TopicPartition, PositionAnchor] = NO_ANCHORS
    ) -> None:
        self._followed = {each.real: each for each in positions}
        with _named(positions):
            await self._reader.follow(
                {each.real: at for each, at in positions.items()}, {each.real: at for each, at in anchors.items()}
            )

    def anchor_below(self, partition: TopicPartition, position: int) -> PositionAnchor | None:
        return self._reader.anchor_below(partition.real, position)

    async def poll(
        self, records_max: int, timeout_ms: int, only: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        places = None if only is None else [each.real for each in only]
        with _named(self._followed.values()):
            found = await self._reader.poll(records_max, timeout_ms, places)
        named = {self._followed[each]: records for each, records in found.items()}
        return {each: of_input(records, each.topic) for each, records in named.items()}

    def position(self, partition: TopicPartition) -> int:
        return self._reader.position(partition.real)

    def end_offset(self, partition: TopicPartition) -> int | None:
        return self._reader.end_offset(partition.real)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._reader.high_watermark(partition.real)


class _Watch:
    """A `ports.TopicWatch` of inputs."""

    def __init__(self, watch: TopicWatch) -> None:
        self._watch = watch

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        return _by_input(names, await self._watch.ids({_topic(name) for name in names}))

    async def close(self) -> None:
        await self._watch.close()


class BroadcastCluster:
    """A cluster, `ports.Cluster`, whose topics are named as inputs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        """Return what names no input."""
        return getattr(self._cluster, name)

    async def reader(
        self,
        *,
        read_committed: bool = True,
        large: bool = False,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
    ) -> Reader:
        ids = {_topic(name): each for name, each in topic_ids.items()}
        reader = await self._cluster.reader(read_committed=read_committed, large=large, patient=patient, topic_ids=ids)
        return cast("Reader", BroadcastReader(reader))

    async def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, TopicFacts]:
        wanted = tuple(names)
        found = await self._cluster.topics({_topic(name) for name in wanted}, optional)
        there = [name for name in (*wanted, *optional) if _topic(name) in found]
        return {name: msgspec.structs.replace(found[_topic(name)], name=name) for name in there}

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return _by_input(names, await self._cluster.topic_ids({_topic(name) for name in names}))

    def topic_watch(self) -> TopicWatch:
        return _Watch(self._cluster.topic_watch())

    async def agreed_end_offset(self, partition: TopicPartition) -> int | None:
        return await self._cluster.agreed_end_offset(partition.real)

    async def open_transaction(self, partition: TopicPartition) -> OpenTransaction | None:
        return await self._cluster.open_transaction(partition.real)
