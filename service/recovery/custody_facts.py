"""The answers of the cluster about a state in memory: which topics there are, who has fenced, what was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import msgspec

from snapreplay.app.names import witness_group
from snapreplay.app.ways import app_name
from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError
from snapreplay.service.core import custody, events, refusals
from snapreplay.service.core.custody import IncrementsReplaced, Verdict
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.lineage import LastFence, unbroken
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.read_positions import read_positions
from snapreplay.service.core.recoverability import start_of
from snapreplay.service.core.retained import RetainedState, needs_inputs
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.core.witness import behind
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery.anchors import was_cut
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.witnesses import witness_ahead
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.log_bounds import log_starts
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.targets import wrong_claim
from snapreplay.service.topics.way_back import way_back
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import NO_OFFSET, Increment
from snapreplay.snapshots.plan import FromSnapshot

T = TypeVar("T")

LOOK_SECONDS_MAX = 5.0
LOOK_AGAIN_SECONDS = 0.2


async def topic_ids_now(context: Context) -> dict[str, str]:
    """Return the ids of both own topics; a missing one is absent.

    Raises:
        Unreachable: no answer.
    """
    return await context.cluster.topic_ids([context.increments.topic, context.snapshots.topic])


def missing(context: Context, last: Increment) -> SnapreplayError:
    """Make the error of `core.custody.missing`."""
    app, topic = context.app, context.increments.topic
    return custody.missing(app.app_id, topic, context.partition, last, app_name(app))


def unsaved(context: Context, last: Increment) -> SnapreplayError:
    """Make the error of `core.custody.unsaved`."""
    topic, app = context.increments.topic, app_name(context.app)
    return custody.unsaved(topic, context.partition, last, app)


def lost(context: Context, change: TopicChange, last: Increment) -> SnapreplayError:
    """Say what a change of the increments topic means to its owner; `last` is its last increment."""
    return missing(context, last) if change.found_id is None else IncrementsReplaced(str(change))


class NothingYet(RetryableError):
    """The partition had owners, but its log holds no increment: one of them may have the state in memory."""


async def nobody_else_fenced(
    context: Context,
    kept: RetainedState | None,
    since: float,
    looked: Callable[[LastFence | None], None],
    *,
    insists: bool,
) -> bool:
    """Ask before fencing: refuse a fence that could only do harm, and say whether nobody else has fenced since `kept`.

    A process that could not go on must not fence. Otherwise the owner whose memory is the only copy would no longer be
    the last one to fence, and could not write its state.

    Args:
        since: the loop's time when the recovery began.
        looked: called with the last fence that the coordinator knows, if it is asked.
        insists: our state is that of the log's last batch, and whoever has fenced since could not restore it.

    Raises:
        IncrementsMissing, NothingYet, NotInitialised, IncrementsBehind, StateDisputed: there is nothing to go on from.
        NotAssigned: another process has fenced since, and the group does not give us the partition.
        Unreachable: no answer.
    """
    if kept is None:
        await _require_any(context, since)
        return True
    await require_increments(context, kept)
    if await nobody_since(context, kept, looked):
        return True
    if insists and await looked_up(context, kept) is Verdict.SAME:
        return False
    await require_given(context)
    topic, ids = context.increments.topic, await topic_ids_now(context)
    is_new = bool(changes([topic], kept.last.topic_ids, ids))  # in the old one only a claim tells
    if is_new and await looked_up(context, replace(kept, unbroken=False)) is Verdict.DISPUTED:
        found = await last_now(context)
        raise custody.disputed(
            context.increments.topic, context.partition, kept, found, app_name(context.app)
        )
    return False


async def _require_any(context: Context, since: float) -> None:
    """Refuse a log without an increment if the partition had owners. At first it is only retried: the leader may be
    stale, or a new beginning not committed yet, which a fence would end. Orphans do not count."""
    is_early = asyncio.get_running_loop().time() - since < stale_leader.PATIENCE_SECONDS
    try:
        orphan = await _orphan(context, is_early=is_early)
        if orphan is None or (orphan and not is_early):
            return  # a recovery says what is wrong with it
    except (DamagedError, OffsetTrimmed):
        return
    try:
        if await context.cluster.last_fence(context.transactional_id) is None:
            return  # nobody ever owned it
    except StopError:
        return
    nothing = refusals.no_genesis(context.expected)
    if is_early:
        raise NothingYet(
            f"{orphan or nothing.message}; an owner that has the state in memory writes it by itself"
        )
    raise nothing


async def _orphan(context: Context, *, is_early: bool) -> str | None:
    """Say why the last increment is an orphan: the claim of its owner is not where it says, in a topic with another
    id. "" if there is no increment at all; None if the last one is no orphan.

    Raises:
        NothingYet, IncrementsBehind: the log has lost its end, and an owner that stands still may have the state.
    """
    log, ids = context.increments, await topic_ids_now(context)
    async with reading(context.cluster) as reader:
        found = await last_increment(reader, log, await reader.bounds(log))
        if found is None:
            return ""
        if not changes([log.topic], found.increment.topic_ids, ids):
            await _require_whole(context, found, is_early=is_early)
            return None
        wrong = await wrong_claim(reader, log, found)
    return f"{log} offset {found.offset}: {wrong}" if wrong is not None else None


async def _require_whole(context: Context, found: FoundIncrement, *, is_early: bool) -> None:
    """Refuse a log that has lost its end; a leader may be stale: what is asked for later is refused only if all
    brokers agree where the log ends."""
    log, app_id = context.increments, context.app.app_id
    witness = await witness_ahead(context.cluster, app_id, log, found)
    if witness is None:
        return
    lost = behind(witness_group(app_id), str(log), witness, found)
    if is_early:
        raise NothingYet(
            f"{lost.message}; an owner that has the state in memory writes it by itself"
        )
    end_offset = await context.cluster.agreed_end_offset(log)
    if end_offset is not None and end_offset <= witness.increment_offset:
        raise lost


async def require_increments(context: Context, kept: RetainedState) -> None:
    """Raise IncrementsMissing if the increments topic does not exist, or Unreachable without an answer."""
    if context.increments.topic not in await topic_ids_now(context):
        raise missing(context, kept.last)


async def nobody_since(
    context: Context,
    kept: RetainedState,
    looked: Callable[[LastFence | None], None] = lambda _: None,
) -> bool:
    """Say whether nobody has fenced since our last fence. Ask before the next one. False when the cluster does not
    tell. `looked`: see `nobody_else_fenced`.

    Raises:
        Unreachable: no answer.
    """
    if kept.lineage is None:
        return False
    try:
        last = await context.cluster.last_fence(context.transactional_id)
    except StopError:
        return False
    looked(last)
    return unbroken(kept.lineage, last, left_open=kept.left_open)


class OutputUndecided(RetryableError):
    """The output of a batch in doubt lies behind an open transaction: whether it was committed shows later."""


async def require_given(context: Context) -> None:
    """Call before fencing somebody who has fenced us.

    Raises:
        NotAssigned: the group's coordinator does not give us the partition now.
        Unreachable: no answer.
    """
    group, number = context.group, context.partition
    if group is not None and not await group.is_assigned_to_us(number):
        raise NotAssigned(
            f"another process has fenced partition {number} since, and the group does not give the partition to us now"
        )


async def resolved(context: Context, output: tuple[str, int, int]) -> events.DoubtResolved:
    """Say whether the batch of this output was committed. Its transaction has ended: we have fenced since.

    Raises:
        OutputUndecided: another transaction on its partition is open.
        Unreachable: no answer.
    """
    topic, number, offset = output
    target = TopicPartition(topic, number)
    if topic not in await context.cluster.topics([topic]):
        return events.DoubtResolved(None, f"topic {topic} does not exist any more")
    async with reading(context.cluster) as reader:
        try:
            bounds = await reader.bounds(target)
            if bounds.end_offset <= offset:
                end_offset = await _high_watermark(context, target)
                if offset < end_offset:
                    raise OutputUndecided(
                        f"{target} can be read up to {bounds.end_offset} of {end_offset}:"
                        f" the output at {offset} is undecided",
                        hint="wait: an open transaction lies before it and ends at its timeout",
                    )
                return events.DoubtResolved(
                    None, f"{target} ends at {end_offset}, but the output was at {offset}"
                )
            record = await reader.read_at(target, offset)
        except (OffsetTrimmed, OffsetBeyondEnd) as error:
            return events.DoubtResolved(None, error.message)
    return events.DoubtResolved(record is not None)


async def _high_watermark(context: Context, target: TopicPartition) -> int:
    async with reading(context.cluster, read_committed=False) as reader:
        return (await reader.bounds(target)).end_offset


async def looked_up(context: Context, kept: RetainedState) -> Verdict | None:
    """Say what the log makes of a state in memory now. Only reads, and needs no claim; None when nobody answers
    soon. A log with a damaged end does not lead to it."""
    topic = context.increments.topic

    async def ask() -> Verdict:
        try:
            topic_ids = await topic_ids_now(context)
            found = await _found(context, kept) if topic in topic_ids else None
            way = kept.undoable or await restorable(context, kept.last) is not False
            return custody.verdict(kept, found, topic, topic_ids, restorable=way)
        except DamagedError:
            return custody.verdict(kept, None, topic, {})

    return await _answer(ask)


async def _answer(ask: Callable[[], Awaitable[T]]) -> T | None:
    """Ask again: one lost answer must not count as no answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            while True:
                with suppress(SnapreplayError):
                    return await ask()
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return None


async def last_now(context: Context) -> FoundIncrement | None:
    """Return the last increment of the log; None also when nobody answers soon."""
    try:
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            there = context.increments.topic in await topic_ids_now(context)
            return await _last(context) if there else None
    except (SnapreplayError, TimeoutError):
        return None


async def restorable(context: Context, last: Increment) -> bool | None:
    """Say whether a recovery would come to the state after `last`; None when nobody answers soon. An increment that
    points to nothing may have lost its pointers with their topic."""

    async def ask() -> bool:
        return await _restorable(context, last, await topic_ids_now(context))

    return await _answer(ask)


async def topic_ids_for(context: Context, kept: RetainedState | None) -> events.TopicIdsRead:
    """Read the topic ids for an owner that has claimed; `kept` is what it has in memory.

    Raises:
        Unreachable: no answer.
    """
    topic_ids = await topic_ids_now(context)
    if kept is None or context.increments.topic not in topic_ids:
        return events.TopicIdsRead(topic_ids)
    if kept.undoable and not needs_inputs(kept.last):
        return events.TopicIdsRead(topic_ids)
    return events.TopicIdsRead(topic_ids, await _restorable(context, kept.last, topic_ids))


async def _restorable(context: Context, last: Increment, topic_ids: Mapping[str, str]) -> bool:
    """Ask the planner that a recovery asks. Only of `last` it is known whether the log has changes."""
    by_replay = last.changes is None and bool(last.anchors)
    if context.snapshots.topic not in topic_ids:
        last = msgspec.structs.replace(last, pointers=[])
    there = {*topic_ids, *await context.cluster.topic_ids(context.input_names)}
    async with reading(context.cluster, read_committed=False) as reader:
        starts = await log_starts(context, reader, there)
        seen = await way_back(context, reader, last, NO_OFFSET, starts, {}, by_replay=by_replay)
    try:
        start = start_of(seen)
    except StopError:
        return False
    is_newest = isinstance(start, FromSnapshot) and start.pointer == last.pointers[0]
    replays = needs_inputs(last) if is_newest else by_replay
    return not replays or await _inputs_are_there(context, last)


async def _inputs_are_there(context: Context, last: Increment) -> bool:
    """Say whether the inputs are those that were processed, and as long. Only a recovery can tell that one is a
    copy."""
    ids = await context.cluster.topic_ids(context.input_names)
    if changes(context.input_names, last.topic_ids, ids):
        return False
    async with reading(context.cluster, topic_ids=ids) as reader:
        for topic, read_position in read_positions(last).items():
            partition = TopicPartition(topic, context.partition)
            bounds = await reader.bounds(partition)
            if not bounds.start_offset <= read_position.position <= bounds.end_offset:
                return False
            if await was_cut(context, reader, partition, read_position):
                return False
    return True


async def _found(context: Context, kept: RetainedState) -> FoundIncrement | None:
    """Find the last increment. An open transaction of somebody else hides what was committed behind it; what was
    answered OK is in the log all the same."""
    found = await _last(context)
    if found is not None and found.offset >= kept.last_offset:
        return found
    async with reading(context.cluster, read_committed=False) as reader:
        try:
            record = await reader.read_at(context.increments, kept.last_offset)
            same = record is not None and decode(record.value or b"") == kept.last
        except (OffsetTrimmed, OffsetBeyondEnd, DamagedError, StopError):
            same = False
    return FoundIncrement(kept.last, kept.last_offset) if same else found


async def _last(context: Context) -> FoundIncrement | None:
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        return await last_increment(reader, context.increments, bounds)
