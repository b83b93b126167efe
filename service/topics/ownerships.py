"""The ownerships, the pointed snapshots and the decisions of a partition, read backwards from the end of its log."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.histories import (
    HISTORY_SECONDS,
    OWNERSHIPS_MAX,
    SNAPSHOTS_MAX,
    Ownership,
    PartitionHistory,
    PointedSnapshot,
)
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.core.search import FoundIncrement, windows
from snapreplay.service.ports import Bounds, Cluster, Reader, TopicPartition
from snapreplay.service.topics.increments import decisions_of, increment_at
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Claim, Increment, Pointer
from snapreplay.snapshots.log.batches import kind_in
from snapreplay.snapshots.log.place import decode_as, seals_of


async def history_of(cluster: Cluster, log: TopicPartition) -> PartitionHistory:
    """Return the history of this increments topic's partition. Reads little more than a few records per ownership.

    Raises:
        NotReadable: the log, or a record of ours in it.
    """
    try:
        async with reading(cluster) as reader:
            return await _History(reader, log).read(await reader.bounds(log))
    except SnapreplayError as error:
        raise NotReadable(log.partition, "unknown", f"its log cannot be read: {error.message}") from error


class _Tail(NamedTuple):
    """The last increment below an offset, and the claims behind it, newest first."""

    last: FoundIncrement | None
    claims: list[InputRecord]


class _History:
    def __init__(self, reader: Reader, log: TopicPartition) -> None:
        self._reader, self._log = reader, log
        self._until = asyncio.get_running_loop().time() + HISTORY_SECONDS
        self._ownerships: list[Ownership] = []
        self._pointers: dict[str, Pointer] = {}
        self._kept: set[str] = set()

    @property
    def _is_enough(self) -> bool:
        return len(self._ownerships) >= OWNERSHIPS_MAX or asyncio.get_running_loop().time() > self._until

    async def read(self, bounds: Bounds) -> PartitionHistory:
        end_offset, newest = bounds.end_offset, None
        while end_offset > bounds.start_offset and not self._is_enough:
            tail = await self._tail(Bounds(bounds.start_offset, end_offset))
            self._ownerships += [self._ownership(each) for each in tail.claims]
            if tail.last is None:
                end_offset = bounds.start_offset
                break
            last, newest = tail.last.increment, newest or tail.last
            self._pointers = {**{each.snapshot_id: each for each in last.pointers}, **self._pointers}
            end_offset = min(last.owner_epoch, end_offset - 1)
            self._ownerships.append(await self._owner(end_offset, bounds, last))
        self._kept = {each.snapshot_id for each in newest.increment.pointers} if newest else set()
        is_late = asyncio.get_running_loop().time() > self._until
        is_whole = end_offset <= bounds.start_offset and len(self._ownerships) <= OWNERSHIPS_MAX and not is_late
        decisions = await decisions_of(self._reader, self._log, newest) if newest and not is_late else ()
        owners = tuple(self._ownerships[:OWNERSHIPS_MAX])
        return PartitionHistory(self._log.partition, owners, await self._snapshots(), is_whole, decisions)

    async def _tail(self, within: Bounds) -> _Tail:
        claims: list[InputRecord] = []
        for window in windows(within.end_offset, within.start_offset):
            found, behind = None, list[InputRecord]()
            async for records in self._reader.read(self._log, window.start_offset, window.end_offset):
                for record in records:
                    kind = kind_in(record, seals_of(self._log))
                    if kind is RecordKind.INCREMENT:
                        found, behind = record, []
                    elif kind is RecordKind.CLAIM:
                        behind.append(record)
            claims += reversed(behind)
            if found is not None:
                last = decode_as(Increment, found.value or b"", self._log, found.offset)
                return _Tail(FoundIncrement(last, found.offset), claims)
        return _Tail(None, claims)

    async def _owner(self, owner_epoch: int, bounds: Bounds, last: Increment) -> Ownership:
        record = await self._reader.read_at(self._log, owner_epoch) if owner_epoch >= bounds.start_offset else None
        if record is not None:
            return self._ownership(record, last)
        return Ownership(owner_epoch, "", "", "", None, last.batch, time_of(last.written_at_ms))

    def _ownership(self, record: InputRecord, last: Increment | None = None) -> Ownership:
        claim = decode_as(Claim, record.value or b"", self._log, record.offset)
        return Ownership(
            owner_epoch=record.offset,
            process_id=claim.process_id,
            instance_id=claim.instance_id,
            host=claim.host,
            claimed_at=time_of(record.timestamp),
            last_batch=last.batch if last else None,
            last_commit_at=time_of(last.written_at_ms) if last else None,
        )

    async def _snapshots(self) -> tuple[PointedSnapshot, ...]:
        newest = sorted(self._pointers.values(), key=lambda each: each.batch, reverse=True)
        return tuple([await self._snapshot(each) for each in newest[:SNAPSHOTS_MAX]])

    async def _snapshot(self, pointer: Pointer) -> PointedSnapshot:
        increment = await increment_at(self._reader, self._log, pointer.increment_offset)
        return PointedSnapshot(
            snapshot_id=pointer.snapshot_id,
            batch=pointer.batch,
            manifest_offset=pointer.manifest_offset,
            increment_offset=pointer.increment_offset,
            batch_at=time_of(increment.written_at_ms) if increment else None,
            is_kept=pointer.snapshot_id in self._kept,
        )
