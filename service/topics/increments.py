"""Reads the increments topic: the last increment of a window, and the walk from a snapshot to the last increment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError, RebuildError
from snapreplay.service.core.base import Base
from snapreplay.service.core.refusals import BrokenChain
from snapreplay.service.core.search import FoundIncrement, Window, windows
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.topics.decode import decode_as, is_ours
from snapreplay.snapshots.format.envelope import RecordKind, headers_for, kind_of
from snapreplay.snapshots.format.records import Claim, Increment

_KIND_HEADERS = {headers_for(kind)[0]: kind for kind in RecordKind}


class ChangesLost(RebuildError):
    """The changes of a batch are damaged, missing, or were never recorded: replay may still lead there."""


@dataclass(frozen=True)
class Unread:
    """A committed batch whose increment, at `offset`, is damaged: only its changes records are left."""

    offset: int
    changes: tuple[bytes, ...]
    error: DamagedError


@dataclass(frozen=True)
class Step:
    """One committed batch: its increment, and the values of the changes records before it, undecoded.

    `unread` are the batches directly before it whose increments cannot be read. This increment names the last of
    them as its predecessor and counts them in its batch number; only its digest shows that their changes are whole.
    """

    increment: Increment
    offset: int
    changes: tuple[bytes, ...]
    unread: tuple[Unread, ...] = ()


async def last_in_window(
    reader: Reader, log: TopicPartition, window: Window
) -> FoundIncrement | None:
    """The last increment in the window, None when it holds none.

    Raises:
        DamagedError: a record of ours behind the last readable increment cannot be read. It may be the
            last increment itself, so an older one must not be taken for it.
    """
    candidate: InputRecord | None = None
    behind: list[InputRecord] = []
    async for records in reader.read(log, window.start_offset, window.end_offset):
        for record in records:
            if kind_of(record.value or b"") is RecordKind.INCREMENT:
                candidate, behind = record, []
            else:
                behind.append(record)
    foreign = sum(_foreign(log, record) for record in reversed(behind))
    if candidate is None:
        return None
    increment = decode_as(Increment, candidate.value or b"", log, candidate.offset)
    return FoundIncrement(increment, candidate.offset, foreign)


async def last_increment(
    reader: Reader, log: TopicPartition, within: Bounds
) -> FoundIncrement | None:
    """The last increment within these bounds, None when they hold none. For readers without a claim, or with a claim
    that was seen.

    Raises:
        DamagedError: as `last_in_window`.
    """
    for window in windows(within.end_offset, within.start_offset):
        found = await last_in_window(reader, log, window)
        if found is not None:
            return found
    return None


def _foreign(log: TopicPartition, record: InputRecord) -> bool:
    """Checks a record of ours whole: neither a flipped kind nor another record in its place must hide an increment.

    Behind the last increment there are claims only: changes are committed together with theirs.
    """
    value = record.value or b""
    if not is_ours(value, record.headers):
        return True
    decode_as(Claim, value, log, record.offset)
    named = _named(record)
    if named not in {RecordKind.CLAIM, None}:
        raise DamagedError(
            f"{log} offset {record.offset} holds a claim, but its header says {named}",
            topic=log.topic,
            partition=log.partition,
            offset=record.offset,
        )
    return False


def _kind(log: TopicPartition, record: InputRecord) -> RecordKind | None:
    """What a record of ours is; None for a foreign one.

    If value and header differ and the value is damaged, the header counts: a flipped kind must not hide an increment,
    and lost first bytes must not make changes foreign, whose checksum their increment holds.

    Raises:
        DamagedError: no header helps.
        UnknownFormatError: a newer version wrote it.
    """
    value = record.value or b""
    kind = kind_of(value)
    if kind is None and not is_ours(value, record.headers):
        return None
    named = _named(record)
    if kind is not None and named in {kind, None}:
        return kind
    if kind is None and named is RecordKind.CHANGES:
        return named
    try:
        decode_as(object, value, log, record.offset)
    except DamagedError:
        if named is None:
            raise
        return named
    return kind


def _named(record: InputRecord) -> RecordKind | None:
    """What its header says it is."""
    return next((_KIND_HEADERS[each] for each in record.headers if each in _KIND_HEADERS), None)


async def newer_claim(
    reader: Reader, log: TopicPartition, after_offset: int, end_offset: int
) -> Claim | None:
    """The newest claim in (after_offset, end_offset), None when nobody claimed after us."""
    newest: Claim | None = None
    async for records in reader.read(log, after_offset + 1, end_offset):
        for record in records:
            if _kind(log, record) is RecordKind.CLAIM:
                newest = decode_as(Claim, record.value or b"", log, record.offset)
    return newest


async def walk(
    reader: Reader, log: TopicPartition, base: Base, last_offset: int
) -> AsyncIterator[Step]:
    """Every batch after `base` up to the increment at `last_offset`, each linked to the one before it.

    Raises:
        BrokenChain: batch number, predecessor or end differ from what was written.
        DamagedError: increments that cannot be read, and the next one is not their successor.
    """
    batch, previous_offset = base.batch, base.increment_offset
    pending = _Pending(log)
    async for records in reader.read(log, base.read_from_offset, last_offset + 1):
        for record in records:
            step = pending.add(record)
            if step is None:
                continue
            _check_link(log, step, batch, previous_offset)
            batch, previous_offset = step.increment.batch, step.offset
            yield step
    if previous_offset != last_offset:
        raise BrokenChain(
            f"the chain in {log} ends at offset {previous_offset}, but the last increment is at {last_offset}: the log"
            " changed while it was read, or was cut",
            expected_batch=batch + 1,
            found_batch=batch,
        )


class _Pending:
    """What was read since the last increment that could be read."""

    def __init__(self, log: TopicPartition) -> None:
        self._log = log
        self._changes: list[bytes] = []
        self._unread: list[Unread] = []

    def add(self, record: InputRecord) -> Step | None:
        """A claim ends what came before it: nothing is pending."""
        value = record.value or b""
        match _kind(self._log, record):
            case RecordKind.CHANGES:
                self._changes.append(value)
            case RecordKind.CLAIM:
                self._changes = []
            case RecordKind.INCREMENT:
                return self._step(record.offset, value)
            case _:
                pass
        return None

    def _step(self, offset: int, value: bytes) -> Step | None:
        changes, self._changes = tuple(self._changes), []
        try:
            increment = decode_as(Increment, value, self._log, offset)
        except DamagedError as error:
            self._unread.append(Unread(offset, changes, error))
            return None
        unread, self._unread = tuple(self._unread), []
        return Step(increment, offset, changes, unread)


def _check_link(log: TopicPartition, step: Step, batch: int, previous_offset: int) -> None:
    increment, expected_batch = step.increment, batch + 1 + len(step.unread)
    if step.unread:
        previous_offset = step.unread[-1].offset
    if increment.batch == expected_batch and increment.previous_offset == previous_offset:
        return
    if step.unread:
        raise step.unread[0].error
    raise BrokenChain(
        f"{log} offset {step.offset}: batch {increment.batch} names offset"
        f" {increment.previous_offset} as its predecessor, but batch {batch} at {previous_offset} precedes it:"
        " this is not the chain that was written",
        expected_batch=expected_batch,
        found_batch=increment.batch,
    )
