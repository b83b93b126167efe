"""The end of each partition's chain, read as a recovery would, without claiming anything."""

from __future__ import annotations

from collections.abc import Mapping

from snapreplay.app import names
from snapreplay.errors import DamagedError, RebuildError, UnknownFormatError
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.recoverability import Recoverability, Seen, outlook
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.doctor.facts import Facts, InputSeen, SnapshotSeen, StateSeen
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.manifests import newest_of_owner
from snapreplay.service.topics.snapshots import load_manifest
from snapreplay.snapshots.format.chunks import open_chunk, unpacking
from snapreplay.snapshots.format.records import Increment, Manifest, Pointer
from snapreplay.snapshots.log.place import decode_as
from snapreplay.snapshots.plan import LogStarts


class StateReader:
    """A reader of states; `committed` reads the increments topic and the inputs, `plain` the snapshots topic."""

    def __init__(self, facts: Facts, committed: Reader, plain: Reader) -> None:
        self._facts = facts
        self._committed = committed
        self._plain = plain
        self._bounds = {
            log.partition: Bounds(log.start_offset, log.last_stable_offset) for log in facts.logs
        }
        app_id = facts.app.app_id if facts.app else ""
        self._increments = names.increments_topic(app_id)
        self._snapshots = names.snapshots_topic(app_id)

    @property
    def partitions(self) -> list[int]:
        """The partitions of which all topics can be read."""
        needed = (self._increments, self._snapshots, *self._facts.inputs)
        numbers = [p.partition for p in self._bounds if p.topic == self._increments]
        return [n for n in numbers if all(TopicPartition(t, n) in self._bounds for t in needed)]

    async def state(self, number: int) -> StateSeen:
        """Return the end of this partition's chain.

        Raises:
            RetryableError: it could not be read.
        """
        try:
            found = await self._last(TopicPartition(self._increments, number))
        except (DamagedError, UnknownFormatError) as error:
            return StateSeen(number, None, missing=error.message)
        if found is None:
            return StateSeen(number, None, topic_ids=await self._in_newest_manifest(number))
        last = found.increment
        newest, unusable = None, None
        for pointer in last.pointers[:1]:
            try:
                newest = await self._snapshot(pointer, number)
            except (RebuildError, UnknownFormatError) as error:
                unusable = f"snapshot {pointer.snapshot_id} cannot be used: {error.message}"
        inputs = [await self._input(last, topic, number) for topic in self._facts.inputs]
        seen = await self._outlook(found, number)
        helps = seen.snapshot_now is not None
        return StateSeen(
            number,
            last.batch,
            seen.missing,
            helps,
            unusable,
            newest,
            tuple(inputs),
            last.topic_ids,
            last.genesis.cluster_id,
        )

    async def _last(self, log: TopicPartition) -> FoundIncrement | None:
        return await last_increment(self._committed, log, self._bounds[log])

    async def _in_newest_manifest(self, number: int) -> Mapping[str, str]:
        """Return the topic ids of the newest manifest that an owner wrote."""
        log = TopicPartition(self._snapshots, number)
        manifest = await newest_of_owner(self._plain, log, self._bounds[log])
        return manifest.topic_ids if manifest is not None else {}

    async def _snapshot(self, pointer: Pointer, number: int) -> SnapshotSeen:
        log = TopicPartition(self._snapshots, number)
        manifest = await load_manifest(self._plain, log, pointer)
        size_bytes = sum(ref.size_bytes for ref in manifest.chunks)
        raw_bytes = round(size_bytes * await self._unpacked(manifest, log))
        return SnapshotSeen(
            pointer.snapshot_id, manifest.created_at_ms, manifest.entry_count, size_bytes, raw_bytes
        )

    async def _unpacked(self, manifest: Manifest, log: TopicPartition) -> float:
        """Return the bytes of keys and values per byte in the topic, as in the first chunk.

        Raises:
            DamagedError: that chunk cannot be read.
        """
        for ref in manifest.chunks[:1]:
            record = await self._plain.read_at(log, ref.offset)
            body = open_chunk((record.value if record else b"") or b"", ref, manifest.snapshot_id)
            parts = [each[1] for each in unpacking(body, ref, manifest.snapshot_id) if each]
            entries = [entry for part in parts for entry in part.entries.items()]
            return sum(len(key) + len(value) for key, value in entries) / ref.size_bytes
        return 0.0

    async def _input(self, last: Increment, topic: str, number: int) -> InputSeen:
        source, anchor = TopicPartition(topic, number), last.anchors.get(topic)
        start_offset, end_offset = self._bounds[source]
        position = last.positions.get(topic, start_offset)
        timestamp_ms = anchor.timestamp_ms if anchor is not None else None
        async for records in self._committed.read(source, max(position, start_offset), end_offset):
            timestamp_ms = records[0].timestamp
            break
        return InputSeen(topic, position, timestamp_ms)

    async def _outlook(self, found: FoundIncrement, number: int) -> Recoverability:
        """Ask the planner, as a recovery does, with the present log starts."""
        starts = LogStarts(
            self._bounds[TopicPartition(self._increments, number)].start_offset,
            self._bounds[TopicPartition(self._snapshots, number)].start_offset,
            {
                topic: self._bounds[TopicPartition(topic, number)].start_offset
                for topic in self._facts.inputs
            },
        )
        pointed = {}
        for pointer in found.increment.pointers if self._facts.by_replay else ():
            positions = await self._positions(pointer, number)
            if positions is not None:
                pointed[pointer.snapshot_id] = positions
        seen = Seen(found.increment, found.offset, starts, pointed, self._facts.by_replay)
        return outlook(seen)

    async def _positions(self, pointer: Pointer, number: int) -> dict[str, int] | None:
        log, offset = TopicPartition(self._increments, number), pointer.increment_offset
        try:
            record = await self._committed.read_at(log, offset)
            value = (record.value if record else b"") or b""
            return decode_as(Increment, value, log, offset).positions
        except (OffsetTrimmed, DamagedError):
            return None
