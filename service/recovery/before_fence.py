"""The question before a fence: one that could only do harm is refused.

A process that could not go on must not fence. Otherwise the owner whose memory is the only copy would no longer be the
last one to fence, and could not write its state.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from snapreplay.app.names import witness_group
from snapreplay.errors import DamagedError, RetryableError, StopError
from snapreplay.service.core import custody, refusals
from snapreplay.service.core.custody import Verdict
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.lineage import unbroken
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.topic_changes import changes
from snapreplay.service.core.witness import behind
from snapreplay.service.recovery.copy_in_log import last_now, looked_up, topic_ids_now
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.witnesses import witness_ahead
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.targets import wrong_claim


class NothingYet(RetryableError):
    """The partition had owners, but its log holds no increment: one of them may have the state in memory."""


async def nobody_else_fenced(
    context: Context, memory: Memory, since: float, *, insists: bool
) -> bool:
    """Ask before fencing: refuse a fence that could only do harm, and say whether nobody else has fenced since our last
    fence.

    Args:
        since: the loop's time when the recovery began.
        insists: our state is that of the log's last batch, and whoever has fenced since could not restore it.

    Raises:
        IncrementsMissing, NothingYet, NotInitialised, IncrementsBehind, StateDisputed: there is nothing to go on from.
        NotAssigned: another process has fenced since, and the group does not give us the partition.
        Unreachable: no answer.
    """
    kept = memory.kept
    if kept is None:
        await _require_any(context, since)
        return True
    await require_increments(context, kept)
    if await nobody_since(context, memory):
        return True
    if insists and await looked_up(context, kept) is Verdict.SAME:
        return False
    await require_given(context)
    await _require_later(context, kept, since)
    topic, ids = context.increments.topic, await topic_ids_now(context)
    is_new = bool(changes([topic], kept.last.topic_ids, ids))  # in the old one only a claim tells
    if is_new and await looked_up(context, replace(kept, unbroken=False)) is Verdict.DISPUTED:
        found = await last_now(context)
        raise custody.disputed(context.expected, kept, found)
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


async def _require_later(context: Context, kept: RetainedState, since: float) -> None:
    """Refuse a log that has lost what others have committed after our state. Then our last batch may be its last one
    again, and the state in memory would pass for the newest."""
    app_id, log = context.app.app_id, context.increments
    if await witness_ahead(context.cluster, app_id, log, kept.held) is None:
        return
    found = await last_now(context)
    if found is not None:
        is_early = asyncio.get_running_loop().time() - since < stale_leader.PATIENCE_SECONDS
        await _require_whole(context, found, is_early=is_early)


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
        raise custody.missing(context.expected, kept.last)


async def nobody_since(context: Context, memory: Memory) -> bool:
    """Say whether nobody has fenced since our last fence. Ask before the next one. False when the cluster does not
    tell.

    Raises:
        Unreachable: no answer.
    """
    kept = memory.kept
    if kept is None or kept.lineage is None:
        return False
    try:
        last = await context.cluster.last_fence(context.transactional_id)
    except StopError:
        return False
    if kept.has_open(last):
        memory.left_open = kept.lineage
    return unbroken(kept.lineage, last, left_open=memory.left_open == kept.lineage)


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
