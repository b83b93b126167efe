"""Takes the full snapshots of a LIVE partition, one at a time, and trims what they make superfluous.

An owner that was fenced may still trim: its floors are lower than those of its successor. Nothing is trimmed for a
snapshot whose topic was deleted: the increments topic may have all that is left of the state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from snapreplay.app.ways import app_name, ensure
from snapreplay.counted import counted
from snapreplay.errors import Reaction, SnapreplayError
from snapreplay.service.clock import time_of, wall_ms, wall_time
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.restore_plan import RestoreObjective, RestorePlan
from snapreplay.service.control.status import SnapshotState, SnapshotStatus
from snapreplay.service.core.adoption import Standing, applied_since, pointer_to, records_between
from snapreplay.service.core.inspected import TopicChange, changes
from snapreplay.service.core.recoverability import Recoverability
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.core.snapshot_policy import (
    Objective,
    SinceSnapshot,
    SnapshotPolicy,
    snapshot_due,
    within_retention,
)
from snapreplay.service.live.adopter import Adopter, Examined
from snapreplay.service.live.committer import Committer
from snapreplay.service.live.recoverability_monitor import RecoverabilityMonitor, SawInputs
from snapreplay.service.ports import TopicPartition
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery.driver import Recovered
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import throttled
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import load_manifest
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import Floors, retention_floors
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")

SHARE = 1 / 3  # of the loop: more delays each step of a transaction (docs/internals/measurements.md, Latency)
RETRY_AFTER_SECONDS = 10.0  # a snapshot that failed is not tried again at once
RETRY_AFTER_SECONDS_MAX = 600.0  # where each attempt leaves chunks behind


class _Pointing(NamedTuple):
    """A written snapshot whose pointer waits for an increment, and the callbacks for its end."""

    pointer: Pointer
    status: SnapshotStatus
    waiting: list[OnDone]


class SnapshotRequests:
    """The requests for a full snapshot.

    Attributes:
        reason: why a snapshot is wanted; None: none is.
        is_needed: one is wanted also if nothing was applied, because the newest one can no longer be used.
        waiting: callbacks for the end of the next snapshot.
        pointing: the snapshots that wait for an increment with their pointer.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.is_needed = False
        self.waiting: list[OnDone] = []
        self.pointing: list[_Pointing] = []

    def want(self, reason: str, *, is_needed: bool = False) -> None:
        self.reason, self.is_needed = self.reason or reason, self.is_needed or is_needed

    def withdraw(self, done: OnDone) -> None:
        """Withdraw the request of `done`, unless its snapshot has begun."""
        if done in self.waiting:
            self.waiting.remove(done)
            if not self.waiting and not self.is_needed and self.reason == "trigger":
                self.reason = None

    def take(self) -> list[OnDone]:
        """Hand over those who wait, without those whose request was cancelled."""
        waiting, self.waiting = self.waiting, []
        return [done for done in waiting if not done(OperationState.RUNNING, None, "")]

    def point_again(self) -> None:
        """Make the requests wait for the next snapshot: no pointer will lead to those that were written."""
        self.waiting += [done for each in self.pointing for done in each.waiting]
        self.pointing = []

    def pointed(self, pointers: list[Pointer]) -> list[_Pointing]:
        """Return those to which a committed increment points now."""
        found = [each for each in self.pointing if each.pointer in pointers]
        self.pointing = [each for each in self.pointing if each not in found]
        return found

    def end(self, state: OperationState, snapshot_id: str | None, detail: str) -> None:
        """Drop the request for a snapshot and answer everybody who waits."""
        self.reason = None
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(state, snapshot_id, detail)


TELL_SECONDS = 0.5
WRITING_FACTOR = 4.0
"""The time of writing by that of loading, where none was written yet: it shares the loop with the processing."""


class ObjectiveWatch:
    """Lives and dies with one LIVE incarnation of a partition that has an objective."""

    def __init__(
        self, context: Context, reporter: Reporter, store: Store, positions: Mapping[str, int], *, by_replay: bool
    ) -> None:
        """Take `positions`, up to which the inputs are committed."""
        self._context = context
        self._reporter = reporter
        self._store = store
        self._positions = positions
        self._records = self._offsets = 0  # since the newest snapshot; the offsets are those that the records took
        self._offsets_per_record = 1.0
        self._mode = "replay" if by_replay else context.settings.restore.mode
        self._newest = (-1, 0)  # batch and bytes of the newest snapshot that is pointed to, as far as known
        self._write_seconds: float | None = None
        self._shown: RestoreObjective | None = None
        self._told_at = 0.0
        self._said = Repeats()

    def committed(self, increment: Increment) -> None:
        self._records += increment.handled_count
        self._offsets += records_between(self._positions, increment.positions)
        self._positions = increment.positions
        if self._records:
            self._offsets_per_record = max(1.0, self._offsets / self._records)

    def marked(self) -> None:
        """Start counting from zero: there is a newer snapshot."""
        self._records = self._offsets = 0

    def now(self, plan: RestorePlan | None, *, from_genesis: bool) -> Objective:
        """Return what the policy judges. `from_genesis`: no snapshot is pointed to."""
        seconds = self._context.settings.restore.objective_seconds
        self._learn(plan)
        speed, state_bytes = self._context.rates.known.speed(self._mode), self._store.size_bytes
        batch, size_bytes = self._newest
        if from_genesis:
            size_bytes = 0
        elif batch < 0:
            size_bytes = state_bytes  # not compressed: an upper bound
        writing = self._write_seconds
        if writing is None:
            writing = WRITING_FACTOR * state_bytes / speed.load_bytes_per_second
        return Objective(seconds, speed, size_bytes, writing, self._offsets_per_record)

    def tell(self, objective: Objective, records: int) -> None:
        """Show what a restore would take now, with so many records behind the newest snapshot that is pointed to."""
        now, before = asyncio.get_running_loop().time(), self._shown
        predicted = objective.predicted(records)
        is_met = predicted <= objective.seconds
        if before is not None and before.is_met == is_met and now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        reason = "" if is_met else _missed(objective, records)
        fresh = objective.predicted(0)
        self._shown = RestoreObjective(objective.seconds, predicted, fresh, is_met, reason)
        self._reporter.note(objective=self._shown)
        if is_met and before is not None and not before.is_met:
            log.info("partition %d: restore.objective_seconds is met again", self._context.partition)
        elif not is_met and (before is None or before.is_met):
            self._warn(reason, now, cause=objective.is_reachable)

    def _learn(self, plan: RestorePlan | None) -> None:
        restore, pointed = self._reporter.recovery, self._reporter.facts.pointed
        found = (restore.snapshot if restore else None, plan.first if plan else None, pointed)
        self._newest = max([self._newest, *((each.batch, each.size_bytes) for each in found if each is not None)])
        if pointed is not None and pointed.finished_at is not None and pointed.reason != "adopted":
            self._write_seconds = (pointed.finished_at - pointed.started_at).total_seconds()

    def close(self) -> None:
        """Withdraw it: another owner may have its own."""
        self._reporter.note(objective=None)

    def _warn(self, reason: str, now: float, *, cause: bool) -> None:
        said = self._said.met(cause, now)
        if said is not None:
            number, more = self._context.partition, said.more(now)
            log.warning("partition %d: restore.objective_seconds is not met: %s%s", number, reason, more)


def _missed(objective: Objective, records: int) -> str:
    predicted, seconds = objective.predicted(records), objective.seconds
    if objective.is_reachable:
        return (
            f"a restore would take {predicted:.2f} s, not {seconds:g} s: {counted(records, 'record')} came since the"
            f" newest snapshot, and a snapshot takes {objective.write_seconds:.2f} s to write"
        )
    return (
        f"a restore even from a new snapshot would take {objective.predicted(0):.2f} s, not {seconds:g} s:"
        f" {objective.size_bytes:,} bytes are to be loaded. Snapshots keep it within {objective.limit_seconds:.2f} s"
    )


class SnapshotScheduler:
    """Takes snapshots when the policy or a person asks. Lives and dies with one LIVE incarnation, so a pointer
    from a dead one can never reach the chain.

    Attributes:
        requests: for a snapshot.
        adopter: judges what jobs propose.
        monitor: whether a recovery would find all it needs.
    """

    def __init__(
        self,
        context: Context,
        store: Store,
        committer: Committer,
        reporter: Reporter,
        recovered: Recovered,
        wake: Callable[[], None],
        saw_inputs: SawInputs,
    ) -> None:
        """Take `wake`, which is called when the pipeline is to begin a snapshot, or to commit a pointer, at once."""
        self._wake = wake
        self._context = context
        self._store = store
        self._committer = committer
        self._reporter = reporter
        by_replay = not context.settings.changelog.enabled
        self._policy = _policy(context, by_replay=by_replay).of(context.app.app_id, context.partition)
        self._objective: ObjectiveWatch | None = None
        if context.settings.restore.objective_seconds:
            positions = recovered.chain.last.positions
            self._objective = ObjectiveWatch(context, reporter, store, positions, by_replay=by_replay)
        self.adopter = Adopter(context, reporter, self._standing, self._adopt, self._outdate)
        self.monitor = RecoverabilityMonitor(
            context, committer, reporter, self._want, self.adopter.seen, saw_inputs, by_replay=by_replay
        )
        self._trimmer = Trimmer(context)
        self.unpointed = recovered.unpointed.shifted(asyncio.get_running_loop().time())
        self._brought_forward: int | None = recovered.unpointed.records  # None: a snapshot was marked since
        self._batch_records = 0  # of the last one
        self.requests = SnapshotRequests()
        self._not_before, self._failures = 0.0, 0
        self._missing = ""  # why there is no snapshots topic
        self._unsaved = ""  # why nothing is in the snapshots topic yet
        self._task: asyncio.Task[None] | None = None
        if committer.chain.pointers_gone:
            self.adopter.topic_replaced()
            self._is_unsaved(f"{context.snapshots.topic} was created again")

    @property
    def changed(self) -> bool:
        """Whether anything was applied since the newest snapshot was marked."""
        return self.unpointed.records > 0

    @property
    def may_become_due(self) -> bool:
        """Whether the next snapshot may begin although nothing more happens."""
        return self.changed or self.unpointed.fell_back or self.requests.reason is not None

    @property
    def writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def request(self, reason: str, done: OnDone) -> None:
        """Take a snapshot on demand. `done` is called once it is pointed to, is not needed, or has failed."""
        self.requests.want(reason)
        self.requests.waiting.append(done)
        if not self.changed:
            self.monitor.look_at_once()
        self._wake()

    def begin_if_due(self) -> None:
        """Call while nothing uncommitted is merged or sealed.

        Raises:
            ImageDiffers: the last image was not the committed state.
        """
        objective = None
        if self._objective is not None:
            from_genesis = not self._committer.chain.last.pointers
            objective = self._objective.now(self.monitor.plan, from_genesis=from_genesis)
            self._objective.tell(objective, self.unpointed.records + self.unpointed.marked)
        if self.writing or self._committer.chain.new_pointer is not None:
            return
        self._raise_fatal()
        if self._missing:
            self.requests.end(OperationState.FAILED, None, self._missing)
            return
        requests, unpointed = self.requests, self.unpointed
        reason = requests.reason or self._due(objective)
        if reason is None:
            return
        needed = self.changed or unpointed.fell_back or requests.is_needed
        if requests.waiting and not needed:
            if not self.monitor.check_pending:
                self._skip()
            return
        marked = self._mark(reason)
        self._task = asyncio.get_running_loop().create_task(self._write_beside(marked))
        # A task that is cancelled before its first step runs nothing of its own.
        self._task.add_done_callback(lambda _: marked.cursor.release())
        self._task.add_done_callback(lambda _: self._wake())

    async def write_now(self, reason: str, *, even_unchanged: bool = False) -> None:
        """Finish the snapshot in progress, then write the last one. Its pointer waits in the chain."""
        await self.adopter.close()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._raise_fatal()
        if (self.changed or even_unchanged) and not self._missing:
            await self._write(self._mark(reason))

    def topic_changed(self, change: TopicChange | None) -> None:
        """Note that the snapshots topic is missing or another one than the chain says; None: neither. Processing
        continues, and a topic that exists again gets the whole state at once."""
        if change is None:
            self._missing = ""
            self.monitor.topic_missing(self._unsaved)
            return
        if self._task is not None:
            self._task.cancel()  # its chunks lie in the old topic
            self.unpointed = self.unpointed.unmarked()
        if change.found_id is None:
            command = ensure(app_name(self._context.app))
            self._missing = f"{change}: no snapshot can be written; {command} creates it"
            self.monitor.topic_missing(self._missing)
            return
        log.warning(
            "partition %d: %s: its snapshots are lost, so a new one is written", self._context.partition, change
        )
        self._missing = ""
        self.adopter.topic_replaced()
        self._is_unsaved(str(change))
        self._committer.chain = self._committer.chain.in_new_topic(change.topic, change.found_id)
        self.requests.reason, self._not_before = "retention", 0.0
        self.unpointed = self.unpointed.lost(self._committer.chain.batch)
        self._wake()

    def _is_unsaved(self, why: str) -> None:
        """Note that the snapshots topic is a new one: nothing is recoverable before a snapshot in it is pointed to."""
        self.requests.point_again()
        self._unsaved = f"{why}: its snapshots are lost, so a new one is being written"
        self.monitor.topic_missing(self._unsaved)

    def committed(self, increment: Increment) -> None:
        """Note a committed increment. Its newest pointer, if new, exists for everybody now."""
        handled = increment.handled_count
        self.unpointed = self.unpointed.applied(handled)
        self._batch_records = handled or self._batch_records
        if self._objective is not None:
            self._objective.committed(increment)
        for each in self.requests.pointed(increment.pointers):
            self._now_pointed(each.pointer, each.status)
            self._trimmer.pointed(increment, self._committer.chain.last_offset)
            for done in each.waiting:
                done(OperationState.SUCCEEDED, each.pointer.snapshot_id, "")

    async def close(self) -> None:
        """Abandon the snapshot in progress, and fail the requests that wait."""
        if self._objective is not None:
            self._objective.close()
        await self.monitor.close()
        await self.adopter.close()
        await self._trimmer.close()
        if self._task is not None:
            await cancel_and_wait(self._task)
        self.requests.point_again()
        self.requests.end(OperationState.FAILED, None, "the partition was released before the snapshot was pointed to")

    def mend(self) -> None:
        """Take a snapshot that a recovery can begin with, even if the log up to now is damaged."""
        self.unpointed = self.unpointed.lost(self._committer.chain.batch + 1)
        self._wake()

    def _want(self, found: Recoverability) -> bool:
        """Request a snapshot for the recoverability monitor, unless one is in progress; return whether it did."""
        under_way = self.writing or self._committer.chain.new_pointer is not None
        if under_way or not (self.changed or found.even_unchanged):
            return False
        self.requests.want("retention", is_needed=found.even_unchanged)
        self._wake()
        return True

    def _outdate(self) -> None:
        """Request a snapshot, so that no recovery looks at what is in the snapshots topic now."""
        self.requests.want("retention", is_needed=True)
        self._wake()

    def _raise_fatal(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.cancelled():
            task.result()

    def _due(self, objective: Objective | None) -> str | None:
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            return None
        unpointed = self.unpointed
        if unpointed.fell_back:
            return "fallback"
        since = self._since(now - unpointed.marked_at)
        return snapshot_due(self._policy, since, objective)

    def _since(self, elapsed_seconds: float) -> SinceSnapshot:
        records, before = self.unpointed.records, self._brought_forward
        per_second = max(0, records - (before or 0)) / max(elapsed_seconds, 0.001)
        elapsed_ms, is_first = int(elapsed_seconds * 1000), before is not None
        return SinceSnapshot(records, elapsed_ms, is_first, per_second, self._batch_records)

    def _skip(self) -> None:
        pointers = self._committer.chain.last.pointers
        newest = pointers[0].snapshot_id if pointers else None
        self.requests.end(OperationState.SKIPPED, newest, "nothing was applied since the newest snapshot")

    def _mark(self, reason: str) -> snapshot_writer.SnapshotMark:
        self.requests.reason, self.requests.is_needed = None, False
        self._brought_forward = None
        if self._objective is not None:
            self._objective.marked()
        self.unpointed = self.unpointed.mark(asyncio.get_running_loop().time())
        return snapshot_writer.mark(self._store, self._committer.chain, reason)

    async def _write_beside(self, marked: snapshot_writer.SnapshotMark) -> None:
        with throttled(SHARE, lambda: self._committer.is_busy):
            await self._write(marked)

    async def _write(self, marked: snapshot_writer.SnapshotMark) -> None:
        waiting = self.requests.take()
        try:
            written = await snapshot_writer.write(self._context, marked, self._reporter)
        except SnapreplayError as error:
            self._failed(error, waiting)
            if error.reaction is Reaction.STOP:
                raise
        except BaseException:
            self.requests.waiting += waiting  # `close` tells them
            raise
        else:
            self._failures = 0
            self._pointer_ready(written.pointer, written.status, waiting)
        # Before another mark, which would do it in one go.
        while not self._store.settle():  # noqa: ASYNC110 - work is done, not waited for
            await asyncio.sleep(0)

    def _standing(self, snapshots_start_offset: int) -> Standing:
        context = self._context
        return Standing(
            self._committer.chain,
            context.increments.topic,
            context.snapshots.topic,
            snapshots_start_offset,
            context.app.schema_version,
            under_way=self.writing or bool(self._missing),
        )

    def _adopt(self, found: Examined, done: OnDone) -> None:
        """Adopt a snapshot; from here on it is as one of our own that was marked after its batch."""
        increment = found.increment
        age_seconds = max(0, wall_ms() - increment.written_at_ms) / 1000
        at = asyncio.get_running_loop().time() - age_seconds
        since = applied_since(increment, self._committer.chain.last)
        self.unpointed = self.unpointed.adopted(since, at)
        if self._objective is not None:
            self._objective.marked()
        status = _adopted(self._context.partition, found)
        self._reporter.update(snapshot=status)
        self._pointer_ready(pointer_to(found.manifest, found.offset), status, [done])

    def _pointer_ready(self, pointer: Pointer, status: SnapshotStatus, waiting: list[OnDone]) -> None:
        self._committer.chain = self._committer.chain.pointing_to(pointer)
        self._wake()
        self.requests.pointing.append(_Pointing(pointer, status, waiting))

    def _failed(self, error: SnapreplayError, waiting: list[OnDone]) -> None:
        """Count what was applied before the mark as unsaved again. An attempt that failed half-way leaves chunks in the
        topic, so the next one waits longer each time."""
        self.unpointed = self.unpointed.unmarked(records_min=1)
        self._failures = self._failures + 1 if error.facts.get("orphans") else 0
        seconds = min(RETRY_AFTER_SECONDS * 2 ** min(self._failures, 16), RETRY_AFTER_SECONDS_MAX)
        self._not_before = asyncio.get_running_loop().time() + seconds
        for done in waiting:
            done(OperationState.FAILED, None, error.message)

    def _now_pointed(self, pointer: Pointer, status: SnapshotStatus) -> None:
        self._unsaved, self.unpointed = "", self.unpointed.pointed(pointer.batch)
        self.monitor.topic_missing(self._missing)
        if self.unpointed.mends(pointer.batch):
            self.monitor.saved()
        else:
            self.monitor.look_at_once()
        self._reporter.pointed(msgspec.structs.replace(status, state=SnapshotState.POINTED))


def _adopted(partition: int, found: Examined) -> SnapshotStatus:
    """Describe a snapshot that was written by a job and is not pointed to yet."""
    manifest = found.manifest
    return SnapshotStatus(
        partition,
        manifest.snapshot_id,
        SnapshotState.WRITTEN,
        "adopted",
        manifest.batch,
        started_at=time_of(manifest.created_at_ms),
        finished_at=wall_time(),
        entries=manifest.entry_count,
        chunks=len(manifest.chunks),
        size_bytes=sum(ref.size_bytes for ref in manifest.chunks),
        manifest_offset=found.offset,
        digest=str(manifest.digest),
    )


def _policy(context: Context, *, by_replay: bool) -> SnapshotPolicy:
    """Return the policy as set; more often where a recovery must replay an input that is deleted by time."""
    settings = context.settings.snapshot
    given = SnapshotPolicy(
        settings.every_records or None, int(settings.every_seconds * 1000) or None, settings.jitter_ratio
    )
    if not by_replay:
        return given
    retention_ms = context.view.input_retention_ms
    policy = within_retention(given, retention_ms, context.settings.retention.snapshots_kept)
    if policy != given:
        log.info(
            "partition %d: snapshots at least every %d ms: a recovery replays the input, whose retention.ms is %d",
            context.partition,
            policy.every_ms,
            retention_ms,
        )
    return policy


class Trimmer:
    """Trims both own topics and the internal topics after each pointer, one trim at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def pointed(self, last: Increment, last_offset: int) -> None:
        """Trim below the pointers of `last`, once there are as many as are kept: before, the genesis may be needed."""
        kept = self._context.settings.retention.snapshots_kept
        if len(last.pointers) < kept or (self._task is not None and not self._task.done()):
            return
        floors = retention_floors(last, last_offset, kept)
        if floors is not None:
            self._task = asyncio.get_running_loop().create_task(self._trim(last, floors))

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _trim(self, last: Increment, floors: Floors) -> None:
        """Trim, unless the process was suspended since: the topics may have been replaced meanwhile."""
        context, stood_still = self._context, list[float]()
        own = (context.increments, context.snapshots)
        internal = [name for name in context.app.internal_names if name in last.positions]
        names = [each.topic for each in own] + internal
        try:
            with context.pulse.notifying(stood_still.append):
                ids = await context.cluster.topic_ids(names)
                for change in changes(names, last.topic_ids, ids):
                    log.warning("partition %d: not trimmed: %s", context.partition, change)
                    return
                trims = [*reversed(list(zip(own, floors, strict=True))), *await self._handled(last, internal)]
                for partition, offset in trims:
                    context.pulse.look()
                    if stood_still:
                        return  # the next snapshot tries again
                    await context.cluster.delete_records(partition, offset)
        except SnapreplayError as error:
            log.warning("partition %d: not trimmed, the next snapshot tries again: %s", context.partition, error)

    async def _handled(self, last: Increment, internal: Sequence[str]) -> list[tuple[TopicPartition, int]]:
        """Return the offset in each of these topics before which no recovery reads: that of the oldest snapshot."""
        if not internal:
            return []
        async with reading(self._context.cluster, read_committed=False, large=True) as reader:
            manifest = await load_manifest(reader, self._context.snapshots, last.pointers[-1])
        places = [TopicPartition(name, self._context.partition) for name in internal]
        return [(each, manifest.positions[each.topic]) for each in places if each.topic in manifest.positions]
