"""The watch over what a recovery of a LIVE partition would need of the topics.

Everything may be green while the input is being deleted; only the next crash would show it. So the owner looks about
once a minute, beside the processing, with readers of its own. It takes a snapshot at once if that helps, and otherwise
raises an alarm (`recoverable` in the status, a metric, a log line).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.clock import time_of, wall_time
from snapreplay.service.control.restore_plan import PlannedRestore, RestoreFacts, RestorePlan, way
from snapreplay.service.control.status import BlockedTopic, OpenTransactionStatus
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.recoverability import Recoverability, Seen, outlook, start_of
from snapreplay.service.core.snapshot_policy import spread
from snapreplay.service.live.committer import Committer
from snapreplay.service.live.fetcher import Ends
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.schemas import SchemasOf
from snapreplay.service.runtime.tasks import cancel_and_wait, turn_in, within
from snapreplay.service.topics.log_bounds import way_back
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import UNUSABLE, load_manifest
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.plan import FromGenesis, LogStarts

log = logging.getLogger("snapreplay.partition")

WATCH_SECONDS = 60.0  # brokers delete every 5 minutes (log.retention.check.interval.ms)
GROUPS = 6
"""Partitions of a process that look together share their requests; all at once would hold up the others."""

REMEDY = (
    "keep this process running until a snapshot is pointed to (`snapreplay trigger-snapshot`); then raise retention.ms"
    " and retention.bytes of the input, or take snapshots more often (snapshot.every_seconds, snapshot.every_records)"
)

LogBounds = Mapping[TopicPartition, tuple[Bounds, Bounds]]
"""Bounds of each log, as read_committed and as read_uncommitted see them."""

Want = Callable[[Recoverability], bool]
"""Asks for a snapshot. Returns whether one will be taken."""

SawSnapshots = Callable[[Bounds], None]
"""Hears the bounds of the snapshots topic at each look."""

SawInputs = Callable[[Mapping[str, Ends]], None]
"""Hears where the inputs end at each look."""


class RecoverabilityMonitor:
    """Lives and dies with one LIVE incarnation.

    Attributes:
        plan: of a restore, by the last check.
    """

    def __init__(
        self,
        context: Context,
        committer: Committer,
        reporter: Reporter,
        want: Want,
        saw_snapshots: SawSnapshots,
        saw_inputs: SawInputs,
        *,
        by_replay: bool,
    ) -> None:
        self._context = context
        self._committer = committer
        self._reporter = reporter
        self._want = want
        self._saw_snapshots, self._saw_inputs = saw_snapshots, saw_inputs
        self._by_replay = by_replay
        self._planner = RestorePlanner(context)
        self._pointed: dict[str, dict[str, int]] = {}
        self._held_back = HeldBack(context)
        self._missing: str | None = None
        self._absent = ""
        self._has_looked = False
        self.plan: RestorePlan | None = None
        self._at_once = asyncio.Event()
        self._looking = False
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def look_at_once(self) -> None:
        """Do not wait for the next turn."""
        self._at_once.set()

    @property
    def is_recoverable(self) -> bool:
        """False if a recovery would fail, as far as the last look knows."""
        return self._missing is None

    @property
    def check_pending(self) -> bool:
        """Whether the check that was requested is still to come, or under way."""
        return self._at_once.is_set() or self._looking

    def has_looked(self) -> bool:
        """Say whether there was a check since the last call."""
        has_looked, self._has_looked = self._has_looked, False
        return has_looked

    def topic_missing(self, why: str) -> None:
        """Note that the snapshots topic is missing; "" when it exists. Without it no process can even start."""
        if why == self._absent:
            return
        before, self._absent = self._absent, why
        if why or self._missing == before:
            self._tell(Recoverability(why or None, None), ())

    def saved(self) -> None:
        """Note that a snapshot of all that was committed is pointed to."""
        if not self._absent:
            self._tell(Recoverability(None, None), ())

    async def close(self) -> None:
        """Withdraw what was seen: the partition may have another owner now."""
        await cancel_and_wait(self._task)
        self._reporter.note(
            recoverable=None, unrecoverable_reason="", blocked_by_open_transaction=(), restore_plan=None
        )

    async def _watch(self) -> None:
        share = int(GROUPS * spread(self._context.app.app_id, self._context.partition)) / GROUPS
        wait_seconds = turn_in(WATCH_SECONDS, share)
        while True:
            await within(wait_seconds, self._at_once)
            wait_seconds = turn_in(WATCH_SECONDS, share, WATCH_SECONDS / 2)
            self._looking = True
            self._at_once.clear()
            try:
                await self._look()
            except SnapreplayError as error:
                log.warning("partition %d: cannot check whether it is recoverable: %s", self._context.partition, error)
            except Exception:  # a defect here must not end the watch, nor the partition
                log.exception("partition %d: unexpected error", self._context.partition)
            finally:
                self._looking = False

    async def _look(self) -> None:
        if self._absent:
            return
        cluster = self._context.cluster
        async with reading(cluster) as committed, reading(cluster, read_committed=False) as plain:
            logs = (*self._inputs(), self._context.increments, self._context.snapshots)
            stable, all_ends = await committed.bounds_of(logs), await plain.bounds_of(logs)
            found = {log: (stable[log], all_ends[log]) for log in logs}
            chain = self._committer.chain
            seen = await way_back(
                self._context.snapshots,
                plain,
                chain.last,
                chain.last_offset,
                self._starts(found),
                self._pointed,
                by_replay=self._by_replay,
            )
            plan = await self._planner.plan(plain, seen)
        if self._absent:
            return
        self.plan = plan
        self._reporter.note(restore_plan=plan)
        newest = plan.first.snapshot_id if plan.first is not None else None
        if newest is not None and self._reporter.status.last_pointed_snapshot_at is None:
            # An owner that had a warm copy has read no manifest.
            self._reporter.note(last_pointed_snapshot_at=self._planner.created_at(newest))
        self._tell(outlook(seen), self._held_back.look({log: found[log] for log in logs[:-1]}))
        self._has_looked = True
        self._saw_snapshots(found[self._context.snapshots][1])
        places = [each for each in self._inputs() if each in found]
        self._saw_inputs({each.topic: Ends(*(both.end_offset for both in found[each])) for each in places})
        named = await self._held_back.named()  # last: it may take long
        if not self._absent:
            self._reporter.note(blocked_by_open_transaction=named)

    def _inputs(self) -> list[TopicPartition]:
        return [TopicPartition(name, self._context.partition) for name in self._committer.chain.last.positions]

    def _starts(self, found: LogBounds) -> LogStarts:
        return LogStarts(
            found[self._context.increments][0].start_offset,
            found[self._context.snapshots][0].start_offset,
            {log.topic: found[log][0].start_offset for log in self._inputs()},
        )

    def _tell(self, found: Recoverability, blocked: tuple[BlockedTopic, ...]) -> None:
        number = self._context.partition
        if found.missing is not None and self._missing is None:
            remedy = "processing continues, but keep this process running" if self._absent else REMEDY
            log.error("partition %d is not recoverable: %s; %s", number, found.missing, remedy)
        elif found.missing is None and self._missing is not None:
            log.info("partition %d is recoverable again", number)
        self._missing = found.missing
        self._reporter.note(
            recoverable=found.missing is None,
            unrecoverable_reason=found.missing or "",
            blocked_by_open_transaction=blocked,
        )
        if found.snapshot_now is not None and self._want(found):
            log.warning("partition %d: a snapshot is taken now: %s", number, found.snapshot_now)


class HeldBack:
    """Finds the logs that an open transaction holds back. It compares two looks: most transactions end in between."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held_at: dict[TopicPartition, int] = {}
        self._blocked: dict[TopicPartition, BlockedTopic] = {}

    def look(self, found: LogBounds) -> tuple[BlockedTopic, ...]:
        """Return the logs that one transaction has held back since the last look, and which, as far as was asked."""
        before, self._held_at = self._held_at, {}
        known, self._blocked = self._blocked, {}
        for each, bounds in found.items():
            stable, end_offset = (those.end_offset for those in bounds)
            if end_offset <= stable:
                continue
            self._held_at[each] = stable
            if before.get(each) == stable:  # the same transaction: the first that is open is where the stable part ends
                held_by = known[each].held_by if each in known else None
                self._blocked[each] = BlockedTopic(each.topic, stable, end_offset - stable, held_by)
        return tuple(self._blocked.values())

    async def named(self) -> tuple[BlockedTopic, ...]:
        """Return the same as the last look, with the transactions. It takes long while a broker is away."""
        for each, blocked in tuple(self._blocked.items()):
            if blocked.held_by is None:
                self._blocked[each] = msgspec.structs.replace(blocked, held_by=await self._ask(each))
        return tuple(self._blocked.values())

    async def _ask(self, partition: TopicPartition) -> OpenTransactionStatus | None:
        try:
            found = await self._context.cluster.open_transaction(partition)
        except SnapreplayError as error:
            log.info("cannot ask which transaction holds back %s: %s", partition, error)
            return None
        return None if found is None else _shown(found)


def _shown(found: OpenTransaction) -> OpenTransactionStatus:
    def time(at_ms: int | None) -> datetime | None:
        return None if at_ms is None or at_ms < 0 else time_of(at_ms)

    return OpenTransactionStatus(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        start_offset=found.start_offset,
        transactional_id=found.transactional_id,
        started_at=time(found.started_at_ms),
        timeout_seconds=None if found.timeout_ms is None else found.timeout_ms / 1000,
        last_record_at=time(found.last_record_at_ms),
    )


class RestorePlanner:
    """Plans a recovery as it would run now. Reads each manifest once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, RestoreFacts] = {}

    async def plan(self, reader: Reader, seen: Seen) -> RestorePlan:
        """Plan by what was just seen of the logs; `reader` reads all records."""
        kept = {pointer.snapshot_id for pointer in seen.last.pointers}
        self._known = {name: facts for name, facts in self._known.items() if name in kept}
        mode = "replay" if seen.by_replay else self._context.settings.restore.mode
        first = await self._first(reader, seen, mode)
        return RestorePlan(
            mode=mode,
            first=first,
            rates=self._context.rates.known,
            made_at=wall_time(),
            replay_needs=SchemasOf(self._context.app).registries,
        )

    def created_at(self, snapshot_id: str) -> datetime | None:
        """Return when this snapshot of the last plan was written."""
        return self._known[snapshot_id].created_at

    async def _first(self, reader: Reader, seen: Seen, mode: str) -> PlannedRestore | None:
        """Return the first way that leads to the last batch; None: no recovery is possible."""
        unusable = dict(seen.unusable)
        while True:
            positions = {name: dict(facts.positions) for name, facts in self._known.items()}
            try:
                start = start_of(replace(seen, unusable=unusable, pointed={**seen.pointed, **positions}))
            except StopError:
                return None
            rates = self._context.rates.known
            if isinstance(start, FromGenesis):
                return way(seen.last, mode, rates, None, RestoreFacts(start.genesis.start_offsets, 0, 0))
            try:
                return way(seen.last, mode, rates, start.pointer, await self._facts(reader, start.pointer))
            except UNUSABLE as error:
                unusable[start.pointer.snapshot_id] = error.message

    async def _facts(self, reader: Reader, pointer: Pointer) -> RestoreFacts:
        known = self._known.get(pointer.snapshot_id)
        if known is None:
            manifest = await load_manifest(reader, self._context.snapshots, pointer)
            size_bytes = sum(each.size_bytes for each in manifest.chunks)
            known = self._known[pointer.snapshot_id] = RestoreFacts(
                manifest.positions, size_bytes, manifest.entry_count, time_of(manifest.created_at_ms)
            )
        return known
