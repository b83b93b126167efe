"""The state of a partition in memory, and the check before a fence.

`Memory` has the state of a partition, and lends it to recovery and processing. It is kept until another process owns
the partition and the log has a proven copy, or the process stops.
A process that could not recover must not fence: the owner whose memory is the only copy would no longer be the last one
to fence, and could not write its state.
"""

from __future__ import annotations

import asyncio
import logging
import math

from msgspec.structs import replace

from snapreplay.errors import DamagedError, RetryableError, SnapreplayError, StopError
from snapreplay.service.core import custody, refusals
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.custody import Healing, Verdict, is_written_after
from snapreplay.service.core.inspected import changes
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.core.lineage import Lineage, unbroken
from snapreplay.service.core.owners import NotAssigned
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.retained import RetainedState, Warm, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery.copy_in_log import (
    asked_for_last,
    end_now,
    last_now,
    looked_up,
    restorable,
    topic_ids_now,
)
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import within
from snapreplay.service.runtime.witnesses import behind_witness
from snapreplay.service.topics.increments import last_increment, newer_owner
from snapreplay.service.topics.reading import may_be_stale, reading
from snapreplay.service.topics.targets import wrong_claim
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")

LOOK_SECONDS = 1.0
ASIDE_SECONDS_MIN, ASIDE_SECONDS_MAX = 5.0, 3600.0  # between attempts that leave chunks behind
OTHERS_SECONDS = 5.0


class Memory:
    """Has the state of a partition at least until the log has a proven copy, and lends it to recovery and processing.

    One per runner.

    Attributes:
        store: the state; None: it was forgotten.
        kept: what `store` holds, until it is LIVE again.
        left_open: our last fence, if a transaction of it that is never asked to commit was seen open.
        last: the last increment that a recovery found in the log.
        recoverable: whether a recovery would find all it needs, as the last incarnation knows.
        proven: whether the log had a copy when it last answered; None: not asked since LIVE.
        copy: a standby's, which `store` holds until a recovery has tried it.
    """

    def __init__(self, context: Context, store: Store | None = None, kept: RetainedState | None = None) -> None:
        self._context = context
        self.store = store
        self.kept = kept
        self.left_open: Lineage | None = None
        self.last: FoundIncrement | None = None
        self.recoverable = True
        self.proven: bool | None = None
        self.copy: WarmCopy | None = None
        self._aside: tuple[Increment, str] | None = None  # a snapshot that nothing points to, and what it is of
        self._aside_tried: Increment | None = None  # whose attempts these are
        self._aside_failures, self._aside_not_before = 0, 0.0
        self._said = Repeats()

    def take(self, store: Store, copy: WarmCopy) -> None:
        """Take the state of a standby: the next recovery continues from it."""
        self.store, self.copy = store, copy

    def leave(self) -> tuple[Store, WarmCopy] | None:
        """Hand the state over as a warm copy after the ownership; None if the log may not have all of it."""
        store, kept, copy = self.store, self.kept, self.copy
        if store is not None and kept is None and copy is not None:
            self.store = self.copy = None
            return store, copy
        if store is None or kept is None or kept.doubtful is not None:
            return None
        if not self._was_proven(kept):
            return None
        store.drop()  # what was applied on top of it would be part of the first batch after the copy
        store.stream_time_ms = kept.last.stream_time_ms
        self.store = self.kept = None
        last, since = FoundIncrement(kept.last, kept.last_offset), kept.unpointed.records
        return store, WarmCopy(last, records_since_snapshot=since)

    def own(self) -> Store:
        """Return the store for the next recovery: the kept or copied state, or an empty one."""
        self.last = None
        if self.kept is None and self.copy is None:
            self.forget()
        if self.store is None:  # an empty one is false
            self.store = self._context.app.new_store()
        return self.store

    def forget(self) -> None:
        """Free the state at once. The garbage collector may be late, and two states may not fit into memory."""
        store, self.store, self.kept, self.copy = self.store, None, None, None
        if store is not None:
            store.clear()

    async def forget_if_proven(self) -> None:
        """Forget the state if it is proven: another process owns the partition."""
        if await self.is_proven():
            self.forget()

    async def is_proven(self) -> bool:
        """Say whether the log has all of the state. Without an answer, its last answer counts, or what was known at the
        last commit."""
        kept = self.kept
        if kept is None:
            return True
        answer = await self._answer(kept)
        if answer is not None and self.kept is kept:
            self.proven = answer
        return self._was_proven(kept)

    def _was_proven(self, kept: RetainedState) -> bool:
        if self.proven is not None:
            return self.proven
        return self.recoverable and not kept.replaced

    async def _answer(self, kept: RetainedState) -> bool | None:
        outcome = await looked_up(self._context, kept)
        if outcome is Verdict.SAME:
            return self.recoverable and await restorable(self._context, kept.last)
        return None if outcome is None else outcome is Verdict.LEADS_ON

    async def until_proven(self, seconds: float = math.inf) -> None:
        """Wait until `is_proven`, at most this long: an operator, or the new owner, repairs the log."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await self.is_proven() and loop.time() < deadline:  # noqa: ASYNC110 - it is in the cluster
            await asyncio.sleep(LOOK_SECONDS)

    async def is_to_be_written(self, owner_epoch: int | None) -> bool:
        """Say whether this process must write the state. A newer owner gets some seconds to recover from the log."""
        line = self._said.line(f"its state is kept in memory: {self.unsaved}", _now())
        if line is not None:
            log.error("partition %d: %s", self._context.partition, line)
        if await self.is_others(owner_epoch):
            await self.until_proven(OTHERS_SECONDS)
            return not await self.is_proven()
        return True

    async def write_aside(self, reporter: Reporter) -> None:
        """Write the state as a snapshot that nothing points to, once, if it is the only copy and nothing can be
        committed: the next start offers it to `accept`. An attempt that failed leaves chunks, so the next one waits
        longer each time. Not where a batch is in doubt whose commit was asked for, nor where another process may have a
        newer state."""
        kept, store, context = self.kept, self.store, self._context
        if kept is None or store is None or self._written_aside:
            return
        if kept.last != self._aside_tried:
            self._aside_tried = kept.last
            self.retry_aside()
        if _now() < self._aside_not_before:
            return
        if Healing.doubt(kept, None) not in (Warm.KEPT, Warm.DROPPED):
            return
        if self._was_proven(kept) or await looked_up(context, kept) not in (Verdict.ONLY_COPY, Verdict.SAME):
            return
        store.drop()  # what was applied on top of it
        self.kept = kept = replace(kept, doubtful=None)
        chain = Chain(context.origin, kept.last.owner_epoch, kept.last, kept.last_offset, pointers_max=1)
        number, topic = context.partition, context.snapshots.topic
        try:
            written = await snapshot_writer.write(context, snapshot_writer.mark(store, chain, "only_copy"), reporter)
        except SnapreplayError as error:
            line = self._said.line(f"its state cannot be written to {topic} either: {error}", _now())
            if line is not None:
                log.error("partition %d: %s", number, line)  # noqa: TRY400 - it says what failed
            if error.facts.get("orphans"):
                self._aside_failures += 1
                wait_seconds = min(ASIDE_SECONDS_MIN * 2 ** min(self._aside_failures, 16), ASIDE_SECONDS_MAX)
                self._aside_not_before = _now() + wait_seconds
            return
        self._aside = kept.last, written.pointer.snapshot_id
        log.error("partition %d: %s", number, self.unsaved)

    def retry_aside(self) -> None:
        """Let the next attempt to write the state aside begin at once, however many have failed."""
        self._aside_failures, self._aside_not_before = 0, 0.0

    @property
    def _written_aside(self) -> str:
        """The snapshot of the state that is kept, which nothing points to; "" if there is none."""
        if self._aside is None or self.kept is None or self._aside[0] != self.kept.last:
            return ""
        return self._aside[1]

    async def until_written(self, stopped: asyncio.Event) -> None:
        """Wait until another process, which has the state in memory, writes an increment after the last one, which
        led nowhere; or until `stopped` is set."""
        known, topic = None, self._context.increments.topic
        while not stopped.is_set():
            await within(LOOK_SECONDS, stopped)
            end = await end_now(self._context)
            if end is None or end == known:
                continue
            try:
                newest = await asked_for_last(self._context)
            except (SnapreplayError, TimeoutError):
                continue
            is_new = newest is not None and is_written_after(newest, self.last, topic)
            if is_new and await self.is_proven():
                return
            known = None if is_new else end

    async def is_others(self, owner_epoch: int | None) -> bool:
        """Say whether another process has claimed since in the log that we wrote to: that owner is left alone. True
        also while the log cannot be read."""
        if owner_epoch is None or self.kept is None:
            return False
        if await looked_up(self._context, self.kept) is not Verdict.SAME:
            return False
        try:
            return await newer_owner(self._context, owner_epoch) is not None
        except SnapreplayError:
            return True

    async def loss(self) -> SnapreplayError | None:
        """Return why the increments topic can take no more of the chain; None: it can, or there is no answer."""
        kept, topic = self.kept, self._context.increments.topic
        if kept is None:
            return None
        try:
            found = await topic_ids_now(self._context)
        except SnapreplayError:
            return None
        if topic not in found:
            return custody.missing(self._context.expected, kept.last)
        changed = changes([topic], kept.last.topic_ids, found)
        return custody.lost(self._context.expected, changed[0], kept.last) if changed else None

    def replaced(self) -> None:
        """Note that the log was replaced: a broker that lags behind may say otherwise."""
        if self.kept is not None:
            self.kept = replace(self.kept, replaced=True)
        self.proven = False

    @property
    def unsaved(self) -> SnapreplayError | None:
        """The loss if the process ended now, as an error; None when nothing is held."""
        kept = self.kept
        if kept is None:
            return None
        return custody.unsaved(self._context.expected, kept.last, self._written_aside)

    @property
    def unproven(self) -> SnapreplayError | None:
        """The error to report if the process ended now. None if the log has a proven copy, as far as is known."""
        return self.unsaved if self.kept is not None and not self._was_proven(self.kept) else None


def _now() -> float:
    return asyncio.get_running_loop().time()


class NothingYet(RetryableError):
    """The partition had owners, but its log has no increment. One of the owners may have the state in memory."""


async def require_no_other_fence(context: Context, memory: Memory, since: float, *, insists: bool) -> bool:
    """Refuse a fence that could only do harm; return whether no process has fenced since our last fence.

    Args:
        since: the loop's time when the recovery began.
        insists: our state is that of the log's last batch, and a process that has fenced since could not restore it.

    Raises:
        IncrementsMissing, NothingYet, NotInitialised, IncrementsBehind, StateDisputed: there is nothing to continue
            from.
        NotAssigned: another process has fenced since, and the group does not give us the partition.
    """
    kept = memory.kept
    if kept is None:
        await _require_any(context, since)
        return True
    await require_increments(context, kept)
    if await no_fence_since(context, memory):
        return True
    if insists and await looked_up(context, kept) is Verdict.SAME:
        return False
    await require_given(context)
    await _require_later(context, kept, since)
    topic, ids = context.increments.topic, await topic_ids_now(context)
    is_new = bool(changes([topic], kept.last.topic_ids, ids))  # in the old one only a claim tells
    if is_new and await looked_up(context, replace(kept, unbroken=False)) is Verdict.DISPUTED:
        raise custody.disputed(context.expected, kept, await last_now(context))
    return False


async def _require_any(context: Context, since: float) -> None:
    """Refuse a log without an increment if the partition had owners; orphans do not count. At first it is only retried:
    the leader may be stale, or a new beginning not committed yet, which a fence would end."""
    is_early = may_be_stale(since)
    try:
        orphan = await _orphan(context, is_early=is_early)
        if orphan is None or (orphan and not is_early):
            return  # a recovery says what is wrong with it
    except (DamagedError, OffsetTrimmed):
        return
    try:
        if await context.cluster.last_fence(context.transactional_id) is None:
            return  # it never had an owner
    except StopError:
        return
    nothing = refusals.no_genesis(context.expected)
    if is_early:
        raise NothingYet(f"{orphan or nothing.message}; an owner that has the state in memory writes it by itself")
    raise nothing


async def _orphan(context: Context, *, is_early: bool) -> str | None:
    """Say why the last increment is an orphan: its owner's claim is not where it says, in a topic with another id. "":
    no increment at all; None: it is no orphan.

    Raises:
        NothingYet, IncrementsBehind: the log has lost its end, and an owner may have the state.
    """
    log, ids = context.increments, await topic_ids_now(context)
    async with reading(context.cluster) as reader:
        found = await last_increment(reader, log)
        if found is None:
            return ""
        if not changes([log.topic], found.increment.topic_ids, ids):
            await _require_whole(context, found, is_early=is_early)
            return None
        wrong = await wrong_claim(reader, log, found)
    return f"{log} offset {found.offset}: {wrong}" if wrong is not None else None


async def _require_later(context: Context, kept: RetainedState, since: float) -> None:
    """Refuse a log that has lost what others have committed after our state, which would pass for the newest."""
    if await behind_witness(context, kept.held) is None:
        return
    found = await last_now(context)
    if found is not None:
        await _require_whole(context, found, is_early=may_be_stale(since))


async def _require_whole(context: Context, found: FoundIncrement, *, is_early: bool) -> None:
    """Refuse a log that has lost its end: at first for a while only, then if all brokers agree where it ends."""
    lost = await behind_witness(context, found)
    if lost is None:
        return
    if is_early:
        raise NothingYet(f"{lost.message}; an owner that has the state in memory writes it by itself")
    end_offset = await context.cluster.agreed_end_offset(context.increments)
    if end_offset is not None and end_offset <= lost.increment_offset:
        raise lost


async def require_increments(context: Context, kept: RetainedState) -> None:
    """Raise IncrementsMissing if the increments topic does not exist, or Unreachable without an answer."""
    if context.increments.topic not in await topic_ids_now(context):
        raise custody.missing(context.expected, kept.last)


async def no_fence_since(context: Context, memory: Memory) -> bool:
    """Say whether no process has fenced since our last fence; False when the cluster does not know. Raises
    Unreachable: no answer."""
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
    """Call before fencing an owner that has fenced us. Raises NotAssigned: the group does not give us the partition
    now."""
    group, number = context.group, context.partition
    if group is not None and not await group.is_assigned_to_us(number):
        raise NotAssigned(
            f"another process has fenced partition {number} since, and the group does not assign it to this process now"
        )
