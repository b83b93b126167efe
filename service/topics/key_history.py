"""The changes of one key, read backwards from the end of a partition's log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.histories import (
    HISTORY_SECONDS,
    LOG_BYTES_MAX,
    SHARE,
    KeyChange,
    KeyHistory,
    ReadKeyHistory,
    ReadRecords,
)
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.search import FIRST_REACH, GROWTH
from snapreplay.service.ports import Bounds, Cluster, Reader, TopicPartition
from snapreplay.service.runtime.cooperative import Pauses, throttled
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import NO_OFFSET, Increment
from snapreplay.snapshots.log.batches import Batches, ChangesLost, Step, apply_changes
from snapreplay.snapshots.log.place import seals_of
from snapreplay.state.contract import StateChanges

WINDOW_BYTES = 1024 * 1024
"""The windows grow while they hold less."""


async def key_history_of(
    cluster: Cluster, log: TopicPartition, read: ReadKeyHistory, key: bytes, partition_count: int
) -> KeyHistory:
    """Return the history of this encoded key in this increments topic's partition.

    Raises:
        NotReadable: the log, or a record of ours in it.
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
        steps, found = Batches(seals_of(self._log)), list[_Batch]()
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
        without = len(step.unread) + increment.begins_anew
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
