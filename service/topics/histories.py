"""The histories of a partition, read backwards from the end of its log: the changes of one key; and its ownerships,
pointed snapshots and decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.kafka_reads import (
    HISTORY_SECONDS,
    LOG_BYTES_MAX,
    OWNERSHIPS_MAX,
    SHARE,
    SNAPSHOTS_MAX,
    KeyChange,
    KeyHistory,
    PartitionHistory,
    PastOwnership,
    PointedSnapshot,
    ReadKeyHistory,
    ReadRecords,
)
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.search import FIRST_REACH, GROWTH, FoundIncrement, windows
from snapreplay.service.ports import Bounds, Cluster, Reader, TopicPartition
from snapreplay.service.runtime.cooperative import Pauses, throttled
from snapreplay.service.topics.increments import decisions_of, increment_at
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import NO_OFFSET, Claim, Increment, Pointer
from snapreplay.snapshots.log.batches import Batches, ChangesLost, Step, apply_changes, kind_in
from snapreplay.snapshots.log.reading import decode_as
from snapreplay.state.contract import StateChanges

WINDOW_BYTES = 1024 * 1024
"""The windows grow while they hold less."""


async def key_history_of(
    cluster: Cluster, log: TopicPartition, read: ReadKeyHistory, key: bytes, partition_count: int
) -> KeyHistory:
    """Return the history of this encoded key in this increments topic's partition.

    Raises:
        NotReadable: the log, or one of our records in it.
    """
    try:
        async with reading(cluster) as reader:
            with throttled(SHARE):
                walk = _Walk(reader, log, read, key)
                await walk.go(await reader.bounds(log))
    except SnapreplayError as error:
        raise NotReadable(log.partition, "unknown", f"its log cannot be read: {error.message}") from error
    return walk.found(partition_count)


class _OfKey:
    """Receives the changes of a batch, and keeps what becomes of one key."""

    def __init__(self, store: str, key: bytes) -> None:
        self._store, self._key = store, key
        self.is_changed = False
        self.stored: bytes | None = None

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> None:
        if self._store in cleared:
            self.is_changed, self.stored = True, None
        entries = changes.get(self._store, {})
        if self._key in entries:
            self.is_changed, self.stored = True, entries[self._key]


class _Batch(NamedTuple):
    """A batch that was looked at: its change of the key, and the batches whose changes are not known."""

    increment: Increment
    offset: int
    change: KeyChange | None
    without_changes: int


class _Walk:
    def __init__(self, reader: Reader, log: TopicPartition, read: ReadKeyHistory, key: bytes) -> None:
        self._reader, self._log, self._asked, self._key = reader, log, read, key
        self._until = asyncio.get_running_loop().time() + HISTORY_SECONDS
        self._bytes = 0
        self._changes: list[KeyChange] = []
        self._oldest: _Batch | None = None
        self._without_changes = 0

    @property
    def _is_over(self) -> bool:
        return self._bytes > LOG_BYTES_MAX or asyncio.get_running_loop().time() > self._until

    async def go(self, bounds: Bounds) -> None:
        """Look at windows that grow: only what lies within one shows whether a batch is there whole."""
        before = self._asked.before
        end_offset = bounds.end_offset if before is None else min(bounds.end_offset, before)
        reach = FIRST_REACH
        while end_offset > bounds.start_offset and len(self._changes) < self._asked.limit and not self._is_over:
            start_offset, before_bytes = max(bounds.start_offset, end_offset - reach), self._bytes
            try:
                batches = await self._window(start_offset, end_offset)
            except OffsetTrimmed:  # meanwhile
                bounds = await self._reader.bounds(self._log)
                continue
            if batches is None:
                return
            is_start = start_offset == bounds.start_offset
            is_first_cut = bool(batches) and not (is_start and _is_there(batches[0].increment, start_offset))
            whole = batches[1:] if is_first_cut else batches
            self._take(whole)
            if is_start:
                return
            if whole:  # the changes of the first one may begin before the window: it is read again
                end_offset = batches[0].offset + 1
            if not whole or self._bytes - before_bytes < WINDOW_BYTES:
                reach *= GROWTH

    async def _window(self, start_offset: int, end_offset: int) -> list[_Batch] | None:
        """Look at all batches that end in a window; None: it took too long."""
        steps, found = Batches(), list[_Batch]()
        async for records in self._reader.read(self._log, start_offset, end_offset):
            pauses = Pauses()
            for record in records:
                self._bytes += len(record.value or b"")
                step = steps.add(record)
                if step is not None:
                    found.append(await self._of(step, pauses))
                await pauses.when_due()
            if self._is_over:
                return None
        steps.finish()
        return found

    async def _of(self, step: Step, pauses: Pauses) -> _Batch:
        receiver, increment = _OfKey(self._asked.store, self._key), step.increment
        without = len(step.unread) + increment.begins_chain
        try:
            for _ in apply_changes(replace(step, unread=()), receiver):
                await pauses.when_due()
        except (ChangesLost, DamagedError):
            return _Batch(increment, step.offset, None, without + 1)
        change = _change(increment, step.offset, receiver.stored) if receiver.is_changed else None
        return _Batch(increment, step.offset, change, without)

    def _take(self, batches: Sequence[_Batch]) -> None:
        for each in reversed(batches):
            if len(self._changes) == self._asked.limit:
                return
            self._oldest = each
            self._without_changes += each.without_changes
            if each.change is not None:
                self._changes.append(each.change)

    def found(self, partition_count: int) -> KeyHistory:
        oldest = self._oldest
        return KeyHistory(
            changes=tuple(self._changes),
            from_batch=oldest and oldest.increment.batch,
            from_offset=oldest and oldest.offset,
            batches_without_changes=self._without_changes,
            is_whole=oldest is not None and oldest.increment.batch == 0,
            partition_count=partition_count,
        )


def _is_there(increment: Increment, log_start_offset: int) -> bool:
    """Say whether the changes of the first increment of a log are there, too: trimming leaves the increment alone."""
    return increment.previous_offset == NO_OFFSET or increment.previous_offset >= log_start_offset - 1


def _change(increment: Increment, offset: int, stored: bytes | None) -> KeyChange:
    ranges = tuple(ReadRecords(each.topic, each.start_offset, each.end_offset) for each in increment.ranges)
    written_at = time_of(increment.written_at_ms)
    return KeyChange(increment.batch, offset, written_at, increment.owner_epoch, ranges, stored)


async def history_of(cluster: Cluster, log: TopicPartition) -> PartitionHistory:
    """Return the history of this increments topic's partition. Reads little more than a few records per ownership.

    Raises:
        NotReadable: the log, or one of our records in it.
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
        self._ownerships: list[PastOwnership] = []
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
                    kind = kind_in(record)
                    if kind is RecordKind.INCREMENT:
                        found, behind = record, []
                    elif kind is RecordKind.CLAIM:
                        behind.append(record)
            claims += reversed(behind)
            if found is not None:
                last = decode_as(Increment, found.value or b"", self._log, found.offset)
                return _Tail(FoundIncrement(last, found.offset), claims)
        return _Tail(None, claims)

    async def _owner(self, owner_epoch: int, bounds: Bounds, last: Increment) -> PastOwnership:
        record = await self._reader.read_at(self._log, owner_epoch) if owner_epoch >= bounds.start_offset else None
        if record is not None:
            return self._ownership(record, last)
        return PastOwnership(owner_epoch, "", "", "", None, last.batch, time_of(last.written_at_ms))

    def _ownership(self, record: InputRecord, last: Increment | None = None) -> PastOwnership:
        claim = decode_as(Claim, record.value or b"", self._log, record.offset)
        return PastOwnership(
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
