"""Plans a recovery of a LIVE partition before it is needed, with the planner of a recovery and the logs as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from snapreplay.app.record import InputRecord
from snapreplay.errors import StopError
from snapreplay.service.clock import time_of, wall_ms, wall_time
from snapreplay.service.control.restore_plan import InputHeadroom, PlannedRestore, RestoreFacts, RestorePlan, way
from snapreplay.service.core.headroom import Growth, Retention
from snapreplay.service.core.recoverability import Seen, start_of
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.snapshots import UNUSABLE, load_manifest
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.plan import FromGenesis, trimmed

LOOKED_AT_OFFSETS = 100  # the first of them may hold no record: markers, or compacted


class RestorePlanner:
    """Reads each manifest once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, RestoreFacts] = {}
        self._growth: dict[str, Growth] = {}

    async def plan(self, reader: Reader, seen: Seen, inputs: Mapping[str, Bounds]) -> RestorePlan:
        """Plan by what was just seen of the logs.

        Args:
            reader: of all records.
            inputs: where each input begins and ends.

        Raises:
            Unreachable, ReadStalled: it could not be found out.
        """
        kept = {pointer.snapshot_id for pointer in seen.last.pointers}
        self._known = {name: facts for name, facts in self._known.items() if name in kept}
        mode = "replay" if seen.by_replay else self._context.settings.restore.mode
        unusable = {
            each.snapshot_id: why
            for each in seen.last.pointers
            if (why := seen.unusable.get(each.snapshot_id) or trimmed(each, seen.starts)) is not None
        }
        found, needed = await self._ways(reader, seen, unusable, mode)
        return RestorePlan(
            mode=mode,
            first=found[0] if found else None,
            fallbacks=tuple(found[1:]),
            unusable=unusable,
            inputs=tuple([await self._headroom(reader, name, needed[name], inputs[name]) for name in sorted(needed)]),
            rates=self._context.rates.known,
            made_at=wall_time(),
        )

    def created_at(self, snapshot_id: str) -> datetime | None:
        """Return when this snapshot of the last plan was written."""
        return self._known[snapshot_id].created_at

    async def _ways(
        self, reader: Reader, seen: Seen, unusable: dict[str, str], mode: str
    ) -> tuple[list[PlannedRestore], Mapping[str, int]]:
        """Return the ways in the order in which a recovery tries them, and the offsets from which the inputs are
        needed. What cannot be used is added to `unusable`."""
        found: list[PlannedRestore] = []
        last, passed, needed = seen.last, dict(unusable), seen.last.positions
        while True:
            positions = {name: dict(facts.positions) for name, facts in self._known.items()}
            try:
                start = start_of(replace(seen, unusable=passed, pointed={**seen.pointed, **positions}))
            except StopError:
                return found, needed
            pointer = None if isinstance(start, FromGenesis) else start.pointer
            if isinstance(start, FromGenesis):
                facts: RestoreFacts | None = RestoreFacts(start.genesis.start_offsets, 0, 0)
            else:
                passed[start.pointer.snapshot_id] = "it is planned"
                facts = await self._facts(reader, start.pointer, unusable)
            if facts is not None:
                if seen.by_replay and not found:
                    needed = {name: facts.positions.get(name, at) for name, at in last.positions.items()}
                found.append(way(last, mode, self._context.rates.known, pointer, facts))
            if pointer is None:
                return found, needed

    async def _facts(self, reader: Reader, pointer: Pointer, unusable: dict[str, str]) -> RestoreFacts | None:
        known = self._known.get(pointer.snapshot_id)
        if known is None:
            try:
                manifest = await load_manifest(reader, self._context.snapshots, pointer)
            except UNUSABLE as error:
                unusable[pointer.snapshot_id] = error.message
                return None
            size_bytes = sum(each.size_bytes for each in manifest.chunks)
            known = self._known[pointer.snapshot_id] = RestoreFacts(
                manifest.positions, size_bytes, manifest.entry_count, time_of(manifest.created_at_ms)
            )
        return known

    async def _headroom(self, reader: Reader, topic: str, needed_from: int, bounds: Bounds) -> InputHeadroom:
        kept = self._context.view.input_retention.get(topic, Retention())
        growth = self._growth.setdefault(topic, Growth())
        growth.look(asyncio.get_running_loop().time(), bounds.end_offset)
        by_time: float | None = None
        by_size: float | str | None = None
        if kept != Retention() and bounds.start_offset <= needed_from:
            sampled = await self._sampled(reader, topic, needed_from, bounds)
            growth.sample(sampled)
            first = next((each for each in sampled if each.offset >= needed_from), None)
            if kept.ms is not None and first is not None and first.timestamp >= 0:  # else Kafka goes by the file's time
                by_time = max(0.0, (first.timestamp + kept.ms - wall_ms()) / 1000)
            if kept.size_bytes is not None:
                by_size = growth.seconds_left(kept.size_bytes, bounds.end_offset - needed_from)
        return InputHeadroom(
            topic,
            needed_from,
            bounds.start_offset,
            max(0, needed_from - bounds.start_offset),
            by_time,
            None if isinstance(by_size, str) else by_size,
            by_size if isinstance(by_size, str) else "",
        )

    async def _sampled(self, reader: Reader, topic: str, needed_from: int, bounds: Bounds) -> list[InputRecord]:
        """Return some records from the first needed one on; from before, if there are few."""
        start = max(bounds.start_offset, min(needed_from, bounds.end_offset - LOOKED_AT_OFFSETS))
        end = min(start + LOOKED_AT_OFFSETS, bounds.end_offset)
        log = TopicPartition(topic, self._context.partition)
        return [each async for records in reader.read(log, start, end) for each in records]
