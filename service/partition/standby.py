"""A warm copy of a partition that another process owns."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Set
from typing import Any

import msgspec

from snapreplay.errors import RetryableError, SnapreplayError
from snapreplay.service.clock import wall_time
from snapreplay.service.control.state_reads import AnsweredBy, BatchUnderWay, NotReadable, Readable
from snapreplay.service.control.status import SnapshotUsed, StandbyStatus, StatusBoard
from snapreplay.service.core.assignment import LAG_STEP_OFFSETS
from snapreplay.service.core.owners import Limits
from snapreplay.service.core.phase import CopyState, Phase
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.retained import RecordsSince, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.recovery.examine import Examiner, LogEndsBefore
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.free_memory import ROOT, available_bytes, memory_of
from snapreplay.service.runtime.progress import RestoreProgress
from snapreplay.service.runtime.report import problem_of
from snapreplay.service.runtime.tasks import cancel_and_wait, turn_in, with_app, within
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Step
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")

LOOK_SECONDS = 0.5
MOMENTS = 8
"""In each of which some of the copies look: together, so that the cluster is asked once, and not all in one go."""
HAND_OVER_SECONDS = 5.0
REJOIN_SECONDS = 10.0
ACCEPTABLE_LAG_OFFSETS = 10_000  # KIP-441's acceptable.recovery.lag

OnStatus = Callable[[StandbyStatus], None]


class _HandedOver(Exception):
    """Ends the work of a standby."""


class StandbyTask:
    """Restores the committed state of a partition, by changes or by a replay without outputs, and follows each batch of
    its owner. It compares every recorded digest and writes nothing. After any error it starts over. `start` it once,
    then `end` it, or hand over its copy."""

    def __init__(self, context: Context, on_status: OnStatus, left: tuple[Store, WarmCopy] | None = None) -> None:
        """Take a context whose `restores` limits concurrent loads, and the state that an owner here left, if any."""
        self._context = context
        self._on_status = on_status
        self._left = left
        self._store: Store = left[0] if left is not None else context.app.new_store()
        self._copy: WarmCopy | None = None
        self._last: Increment | None = None  # that of the copy; None: the store has none, or more than that
        self._is_followed = False
        self._newest_at = 0.0
        self._lag_offsets = 0
        self._compared = 0  # recorded digests, all equal
        self._since: RecordsSince | None = None  # as long as there is a copy
        self._asked = asyncio.Event()  # to hand over
        self._failures = 0  # in a row
        backoff = context.settings.restore
        self._limits = Limits(backoff_ms_min=backoff.retry_backoff_ms, backoff_ms_max=backoff.retry_backoff_max_ms)
        self._task: asyncio.Task[None] | None = None
        self._said = Repeats()
        self.seen_at = -math.inf
        """When it last saw a commit of the owner that was new to it, by the loop's clock."""
        self.status = StandbyStatus(partition=context.partition)

    @property
    def is_warm(self) -> bool:
        """Whether a takeover would have little left to apply."""
        is_following = self._task is not None and not self._task.done()
        return is_following and self._copy is not None and self._lag_offsets <= ACCEPTABLE_LAG_OFFSETS

    @property
    def is_ahead(self) -> bool:
        """Whether the log does not have its batch: no other process may have it either."""
        return self._copy is not None and self.status.state == CopyState.AHEAD

    @property
    def is_failing(self) -> bool:
        """Whether it fails to load, and may never be warm."""
        return self.status.state == CopyState.LOADING and self.status.error is not None

    @property
    def known_lag(self) -> int:
        """The offsets that it is behind; as many as are acceptable, while it cannot look."""
        cannot_look = self.status.error is not None and self.status.state == CopyState.WARM
        return ACCEPTABLE_LAG_OFFSETS if cannot_look else self._lag_offsets

    def readable(self) -> Readable:
        """Return the copy as of a whole batch.

        Raises:
            NotReadable: it is being loaded.
            BatchUnderWay: a batch is partly applied; a moment later it is not.
        """
        number = self._context.partition
        if self._last is None and self._is_followed:
            raise BatchUnderWay(number)
        if self._last is None:
            raise NotReadable(number, self.status.state, "its warm copy here is being loaded")
        age_seconds = asyncio.get_running_loop().time() - self._newest_at
        return Readable(self._store, self._last, AnsweredBy.STANDBY, self._last.owner_epoch, age_seconds)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=with_app(f"standby-{self._context.partition}")
        )

    async def end(self) -> None:
        """Give up the copy, and free its memory at once."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        self._copy = None
        self._store.clear()

    async def hand_over_to(self, take: Callable[[Store, WarmCopy], None]) -> None:
        """End, and give the copy to the partition's new owner here, as of a whole batch."""
        self._asked.set()
        has_ended = False
        if self._copy is not None and self._task is not None:
            if self._last is None:
                await asyncio.wait({self._task}, timeout=HAND_OVER_SECONDS)
            has_ended = self._task.done()
            await cancel_and_wait(self._task)
        copy = self._copy if has_ended or self._last is not None else None
        if copy is None:
            await self.end()
        else:
            take(self._store, copy)

    async def _run(self) -> None:
        while not self._asked.is_set():
            try:
                await self._copied()
            except _HandedOver:
                return
            except SnapreplayError as error:
                self._failed(error)
            except Exception as error:  # else it would go unnoticed
                log.exception("the standby of partition %d failed, and starts over", self._context.partition)
                self._failed(error)
            if not self._asked.is_set():
                self._failures += 1
                await within(self._limits.backoff_ms(self._failures) / 1000, self._asked)

    async def _copied(self) -> None:
        """Restore, then follow until asked to hand over."""
        self._last, self._is_followed, self._newest_at = None, False, asyncio.get_running_loop().time()
        left, self._left = self._left, None
        self._copy = left[1] if left is not None else None
        if left is None:
            self._store.clear()  # never two of them in memory
            self._store = self._context.app.new_store()
        examiner = Examiner(self._context, self._store, Room(self._store, self._drop), copy=self._copy)
        try:
            refusal = await examiner.examine_beside_owner()
            if left is not None and isinstance(refusal, IncrementsBehind):
                self._left, self._last = left, left[1].last.increment
                self._keep(CopyState.AHEAD, refusal)
                return
            if refusal is not None:
                raise refusal
            examiner.refuse_older()
            examiner.executor.end_load()
            self._compared = examiner.executor.digests_compared
            since = examiner.executor.records_since_snapshot
            self._since = RecordsSince(examiner.found.increment, since)
            self._warm(WarmCopy(examiner.found, since))
            share = self._context.partition % MOMENTS / MOMENTS
            while not self._asked.is_set():
                await within(turn_in(LOOK_SECONDS, share, LOOK_SECONDS / 2), self._asked)
                await self._follow(examiner)
        finally:
            await examiner.close()

    async def _follow(self, examiner: Examiner) -> None:
        """Apply what was committed since."""
        copy, now = self._copy, asyncio.get_running_loop().time()
        try:
            newer = await examiner.newer()
        except LogEndsBefore as error:
            self._keep(CopyState.AHEAD, error)
            return
        except RetryableError as error:
            await examiner.forget_reader()
            self._keep(CopyState.WARM, error)
            return
        self._newest_at = now if newer is None else self._newest_at
        if copy is None or newer is None:
            self._update(state=CopyState.WARM, error=None)
            return
        self._lag_offsets = newer.offset - copy.last.offset
        self.seen_at = asyncio.get_running_loop().time()
        self._update(state=CopyState.WARM, error=None)
        await examiner.follow(newer, self._at)
        self._newest_at = now
        self._failures = 0
        self._warm(self._copy or copy)

    def _drop(self) -> None:
        """Forget the copy that an owner left: a snapshot is loaded in its place."""
        self._copy = None

    def _warm(self, copy: WarmCopy) -> None:
        self._copy, self._last, self._lag_offsets = copy, copy.last.increment, 0
        self._is_followed = True
        digest = self._store.digest
        self._update(
            state=CopyState.WARM,
            batch=copy.last.increment.batch,
            entries=digest.count,
            digest=str(digest),
            digests_compared=self._compared,
            error=None,
        )

    def _keep(self, state: CopyState, error: SnapreplayError) -> None:
        """Keep the copy: if the log has lost its end, this may be the only copy of that batch."""
        self._warn("the standby keeps its copy", error)
        batch = self._copy.last.increment.batch if self._copy is not None else None
        self._update(state=state, batch=batch, error=problem_of(error))

    def _at(self, step: Step | None) -> None:
        """Note the batch that the store has; None: a batch is applied in part."""
        copy, self._last = self._copy, step.increment if step is not None else None
        self._compared += step is not None
        if step is None or copy is None or self._since is None:
            return
        since = self._since.applied(step.increment)
        self._copy = WarmCopy(FoundIncrement(step.increment, step.offset), since)
        if self._asked.is_set():
            raise _HandedOver

    def _failed(self, error: BaseException) -> None:
        self._copy, self._last, self._is_followed = None, None, False
        self._store.clear()  # what is loaded of it may be why there is no room
        self._warn("the standby starts over", error)
        self._update(state=CopyState.LOADING, error=problem_of(error))

    def _warn(self, what: str, error: BaseException) -> None:
        """Log it. A cause is the error's class: its text may have other figures each time."""
        now = asyncio.get_running_loop().time()
        said = self._said.met((what, type(error)), now)
        if said is not None:
            log.warning("partition %d: %s: %s%s", self._context.partition, what, error, said.more(now))

    def _update(self, **changes: Any) -> None:
        self.status = msgspec.structs.replace(
            self.status, updated_at=wall_time(), lag_offsets=self._lag_offsets, **changes
        )
        self._on_status(self.status)


class Standbys:
    """The standbys of a process, by partition. For the runners' loop, but for `warm`."""

    def __init__(
        self, context_of: Callable[[int], Context], board: StatusBoard, is_busy: Callable[[int], bool]
    ) -> None:
        """Take `is_busy`: the partition still has a runner, whose state a copy would double."""
        self._context_of = context_of
        self._board = board
        self._is_busy = is_busy
        self._wanted: frozenset[int] = frozenset()
        self._held: dict[int, StandbyTask] = {}
        self._next: frozenset[int] = frozenset()
        self._rejoin: Callable[[], None] = lambda: None
        self._rejoined_at = -REJOIN_SECONDS
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def warm(self) -> frozenset[int]:
        """The partitions whose copies are warm. Any thread."""
        return frozenset(number for number, standby in tuple(self._held.items()) if standby.is_warm)

    @property
    def lags(self) -> dict[int, int]:
        """Partition → lag in offsets of the copies that are not close to their owner. Any thread."""
        found = {number: standby.known_lag for number, standby in tuple(self._held.items())}
        return {number: lag for number, lag in found.items() if lag >= LAG_STEP_OFFSETS}

    def seen_at(self, partitions: Iterable[int]) -> float:
        """Return when the copies of these last saw a commit, by the loop's clock."""
        return max((self._held[number].seen_at for number in partitions if number in self._held), default=-math.inf)

    @property
    def held(self) -> Set[int]:
        """The partitions that are copied here."""
        return self._held.keys()

    def readable(self, number: int) -> Readable | None:
        """Return a copy to read; None: there is none. Raises NotReadable as `StandbyTask.readable`."""
        standby = self._held.get(number)
        return standby.readable() if standby is not None else None

    def hold(self, partitions: Set[int], coming: frozenset[int], rejoin: Callable[[], None]) -> None:
        """Hold copies of these partitions, and of no others except those that the log is behind. `rejoin` is called
        when the copies of those `coming` here are warm or cannot be loaded; again later, if they did not come."""
        self._next, self._rejoin, self._wanted = coming, rejoin, frozenset(partitions)
        for number in self._held.keys() - partitions:
            self._end_unless_ahead(number)
        for number in sorted(partitions):
            self.freed(number)

    def freed(self, number: int, leave: Callable[[], tuple[Store, WarmCopy] | None] = lambda: None) -> None:
        """Begin a copy, if one is to be held and the partition's runner has ended; from what that can `leave`."""
        if number in self._wanted and number not in self._held and not self._is_busy(number):
            standby = self._held[number] = StandbyTask(self._context_of(number), self._seen, leave())
            standby.start()

    def taken(self, number: int) -> StandbyTask | None:
        """Give up a standby to the partition's runner, which ends it; None: there is none."""
        self._board.publish_standby(number, None)
        return self._held.pop(number, None)

    async def end(self) -> None:
        self._wanted = frozenset()
        for number in tuple(self._held):
            standby = self._held.pop(number)
            if standby.is_ahead:
                batch = standby.status.batch
                log.error(
                    "partition %d: its log has lost batch %s, and the warm copy that has it is lost when this process"
                    " ends",
                    number,
                    batch,
                )
            self._end(standby, number)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end_unless_ahead(self, number: int) -> None:
        """End a copy that is not to be held here. One that the log is behind is kept until it is not any more."""
        if not self._held[number].is_ahead:
            self._end(self._held.pop(number), number)

    def _end(self, standby: StandbyTask, number: int) -> None:
        self._board.publish_standby(number, None)
        ending = asyncio.get_running_loop().create_task(standby.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _seen(self, status: StandbyStatus) -> None:
        if status.partition not in self._held:
            return
        self._board.publish_standby(status.partition, status)
        if status.partition not in self._wanted:
            self._end_unless_ahead(status.partition)
            return
        now = asyncio.get_running_loop().time()
        if now - self._rejoined_at >= REJOIN_SECONDS and self._have_come():
            self._rejoined_at = now
            self._rejoin()

    def _have_come(self) -> bool:
        """Say whether some that are coming are warm, and none of the others is on its way."""
        # Each copy asks this at each look, so it must not go through all copies of the process.
        is_nobody_late = not any(map(self._is_on_its_way, self._next))
        return is_nobody_late and any(self._held[number].is_warm for number in self._next)

    def _is_on_its_way(self, number: int) -> bool:
        standby = self._held.get(number)
        return standby is None or not (standby.is_warm or standby.is_failing)


class NoRoom(RetryableError):
    """A warm copy needs more memory than is free."""


class Room(RestoreProgress):
    """Ends the load of a copy that will not fit. A manifest does not say how large its entries are, so the rest is
    judged by the loaded part."""

    def __init__(self, store: Store, begins: Callable[[], None]) -> None:
        """Take `begins`, which is called when the store is about to lose what it holds."""
        self._store = store
        self._begins = begins
        self._entries = 0

    def phase(self, phase: Phase) -> None:
        """Note that the load begins."""
        if phase is Phase.LOADING:
            self._begins()

    def restore(self, **facts: Any) -> None:
        used = facts.get("snapshot")
        if isinstance(used, SnapshotUsed):
            self._entries = used.entries

    def progress(self, unit: str, from_: int, current: int, target: int) -> None:
        """Note how much of the snapshot is loaded. Raises NoRoom: what is left of the state takes more than is free."""
        available = available_bytes(ROOT) if unit == "bytes" else None
        if available is None or target == from_:
            return
        # At first only the compressed size is known: the entries have at least that.
        whole = self._store.size_bytes * target // current if current else target
        needed = memory_of(whole, self._entries) * (target - current) // target
        if needed > available:
            what = f"the rest of the copy, of which {current / target:.0%} are loaded," if current else "the copy"
            raise NoRoom(f"{what} takes about {needed:,} bytes of memory, and {available:,} are free")
