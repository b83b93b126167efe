"""Reading T-ZengLiang: the last increment of a window, and the walk from a snapshot to the last increment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from snapreplay.service.core.locate import Window
from snapreplay.service.core.located import Found
from snapreplay.service.partition.decoding import decode_as, is_ours
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.snapshots.errors import RebuildError, StopError
from snapreplay.snapshots.format.envelope import Kind, headers_for, kind_of
from snapreplay.snapshots.format.records import NO_OFFSET, Claim, Genesis, Increment, Manifest
from snapreplay.snapshots.program.record import InputRecord

CHANGES_HEADER = headers_for(Kind.CHANGES)[0]


class BrokenChain(StopError):
    """Two increments that should follow each other do not: the log is not the chain that was written."""


class ChangesLost(RebuildError):
    """The changes of a batch are damaged, missing, or were never recorded: replay may still lead there."""


@dataclass(frozen=True)
class Base:
    """The committed batch a state belongs to: where the walk begins.

    `increment_offset` is that of its increment, NO_OFFSET before the genesis; `read_from_offset` is where the
    records after it begin.
    """

    batch: int
    increment_offset: int
    read_from_offset: int
    positions: Mapping[str, int]

    @classmethod
    def of_snapshot(cls, manifest: Manifest) -> Base:
        offset = manifest.increment_offset
        return cls(manifest.batch, offset, offset + 1, manifest.positions)

    @classmethod
    def before_genesis(cls, genesis: Genesis, log_start_offset: int) -> Base:
        """The empty state: the first increment of the log must be batch 0."""
        return cls(-1, NO_OFFSET, log_start_offset, genesis.start_offsets)


@dataclass(frozen=True)
class Step:
    """One committed batch: its increment, and the values of the changes records before it, undecoded."""

    increment: Increment
    offset: int
    changes: tuple[bytes, ...]


async def last_in_window(reader: Reader, log: TopicPartition, window: Window) -> Found | None:
    """The last increment in the window, None when it holds none.

    Raises:
        DamagedError: a record of ours behind the last readable increment cannot be read. It may be the
            last increment itself, so an older one must not be taken for it.
    """
    candidate: InputRecord | None = None
    behind: list[InputRecord] = []
    async for records in reader.read(log, window.start_offset, window.end_offset):
        for record in records:
            if kind_of(record.value or b"") is Kind.INCREMENT:
                candidate, behind = record, []
            else:
                behind.append(record)
    foreign = sum(_foreign(log, record) for record in behind)
    if candidate is None:
        return None
    increment = decode_as(Increment, candidate.value or b"", log, candidate.offset)
    return Found(increment, candidate.offset, foreign)


def _foreign(log: TopicPartition, record: InputRecord) -> bool:
    """Checks a record of ours whole: a flipped kind must not hide an increment."""
    value = record.value or b""
    if not is_ours(value, record.headers):
        return True
    decode_as(object, value, log, record.offset)
    return False


def _kind(log: TopicPartition, record: InputRecord) -> Kind | None:
    """What a record of ours says it is; None for a foreign one.

    Changes are known by their header when their first bytes are lost: their increment holds their checksum, and
    replay does without them.
    """
    value = record.value or b""
    kind = kind_of(value)
    if kind is not None or not is_ours(value, record.headers):
        return kind
    if CHANGES_HEADER in record.headers:
        return Kind.CHANGES
    decode_as(object, value, log, record.offset)  # raises: its header says it is ours
    return None


async def newer_claim(
    reader: Reader, log: TopicPartition, after_offset: int, end_offset: int
) -> Claim | None:
    """The newest claim in (after_offset, end_offset), None when nobody claimed after us."""
    newest: Claim | None = None
    async for records in reader.read(log, after_offset + 1, end_offset):
        for record in records:
            if _kind(log, record) is Kind.CLAIM:
                newest = decode_as(Claim, record.value or b"", log, record.offset)
    return newest


async def walk(
    reader: Reader, log: TopicPartition, base: Base, last_offset: int
) -> AsyncIterator[Step]:
    """Every batch after `base` up to the increment at `last_offset`, each linked to the one before it.

    Raises:
        BrokenChain: batch number, predecessor or end differ from what was written.
    """
    batch, previous_offset = base.batch, base.increment_offset
    changes: list[bytes] = []
    async for records in reader.read(log, base.read_from_offset, last_offset + 1):
        for record in records:
            step = _step(log, record, changes)
            if step is None:
                continue
            _check_link(log, step, batch, previous_offset)
            batch, previous_offset, changes = step.increment.batch, step.offset, []
            yield step
    if previous_offset != last_offset:
        raise BrokenChain(
            f"{log} ends its chain at offset {previous_offset},"
            f" the last increment is at {last_offset}",
            hint="the log changed while it was read, or was cut: run `snapreplay audit`",
        )


def _step(log: TopicPartition, record: InputRecord, changes: list[bytes]) -> Step | None:
    """Collects changes until their increment comes. A claim ends what came before it: nothing is pending."""
    value = record.value or b""
    match _kind(log, record):
        case Kind.CHANGES:
            changes.append(value)
        case Kind.CLAIM:
            changes.clear()
        case Kind.INCREMENT:
            return Step(
                decode_as(Increment, value, log, record.offset), record.offset, tuple(changes)
            )
        case _:
            pass
    return None


def _check_link(log: TopicPartition, step: Step, batch: int, previous_offset: int) -> None:
    increment = step.increment
    if increment.batch == batch + 1 and increment.previous_offset == previous_offset:
        return
    raise BrokenChain(
        f"{log} offset {step.offset}: batch {increment.batch} names offset"
        f" {increment.previous_offset} as its predecessor, but batch {batch} at {previous_offset} precedes it",
        hint="two owners wrote at once, or records were removed: run `snapreplay audit`",
        expected_batch=batch + 1,
        found_batch=increment.batch,
    )
