"""The choice of full snapshots that a LIVE partition takes, one at a time, and of those who hear when one is
pointed to."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from snapreplay.app.ways import app_name, ensure
from snapreplay.errors import Reaction, SnapreplayError
from snapreplay.service.clock import time_of, wall_ms, wall_time
from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.service.control.status import SnapshotState, SnapshotStatus
from snapreplay.service.core.adoption import Standing, pointer_to, records_between
from snapreplay.service.core.recoverability import Recoverability
from snapreplay.service.core.snapshot_policy import (
    SinceSnapshot,
    SnapshotPolicy,
    safety_net,
    snapshot_due,
    within_retention,
)
from snapreplay.service.core.topic_changes import TopicChange
from snapreplay.service.live.adopter import Adopter
from snapreplay.service.live.committer import Committer
from snapreplay.service.live.recoverability_monitor import RecoverabilityMonitor
from snapreplay.service.live.trimming import Trimmer
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.recovery.driver import Recovered
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.proposals import Examined
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.state.contract import Store

log = logging.getLogger("snapreplay.partition")

RETRY_AFTER_SECONDS = 10.0  # a snapshot that failed is not tried again at once


class SnapshotScheduler:
    """Takes snapshots when the policy or a person asks. Lives and dies with one LIVE incarnation, so a pointer
    from a dead one can never reach the chain."""

    def __init__(
        self,
        context: Context,
        store: Store,
        committer: Committer,
        reporter: Reporter,
        recovered: Recovered,
    ) -> None:
        self._context = context
        self._store = store
        self._committer = committer
        self._reporter = reporter
        by_replay = not (context.settings.changelog.enabled and store.keeps_changes)
        self._policy = _policy(context, by_replay=by_replay)
        self._adopter = Adopter(context, reporter, self._standing, self._adopt, self._outdate)
        self._watch = RecoverabilityMonitor(
            context, committer, reporter, self._want, self._adopter.seen, by_replay=by_replay
        )
        self._records = recovered.records_since_snapshot
        self._marked = 0
        self._trimmer = Trimmer(context)
        self._since = asyncio.get_running_loop().time() - recovered.seconds_since_snapshot
        self._unpointed_since = self._since
        self._not_before = 0.0
        self._missing = ""  # why there is no snapshots topic
        self._unsaved = ""  # why nothing is in the snapshots topic yet
        self._wanted: str | None = None
        self._needed = False  # although nothing was applied: the newest one cannot be used any more
        self.fallback_pending = recovered.snapshot_now
        """The damage that the recovery met will be met again, as long as no snapshot from behind it is pointed to."""
        self.mended_from_batch = committer.chain.batch  # an adopted snapshot may be of an older one
        self._waiting: list[OnDone] = []
        self._pointing: list[tuple[Pointer, list[OnDone]]] = []
        self._task: asyncio.Task[None] | None = None
        if committer.chain.pointers_gone:
            self._adopter.topic_replaced()
            self._is_unsaved(f"{context.snapshots.topic} was created again")

    @property
    def changed(self) -> bool:
        """Whether anything was applied since the newest snapshot was marked."""
        return self._records > 0

    @property
    def unpointed_records(self) -> int:
        """The records applied since the newest snapshot that is pointed to was marked, or more."""
        return self._records + self._marked

    @property
    def unpointed_seconds(self) -> float:
        """The time since the newest snapshot that is pointed to was marked. A doubt must not begin the interval
        anew: frequent ones would put off the next snapshot for ever."""
        return asyncio.get_running_loop().time() - self._unpointed_since

    @property
    def writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def looked(self) -> bool:
        """Say whether the recoverability monitor has looked since the last call."""
        looked, self._watch.looked = self._watch.looked, False
        return looked

    def request(self, reason: str, done: OnDone) -> None:
        """Take a snapshot on demand. `done` is called once the snapshot is pointed to, is not needed, or has
        failed."""
        self._wanted = self._wanted or reason
        self._waiting.append(done)
        if not self.changed:
            self._watch.look_at_once()

    def adopt(self, manifest_offset: int, done: OnDone) -> None:
        """Judge what a job proposes. `done` is called once the snapshot is pointed to, or is rejected."""
        self._adopter.request(manifest_offset, done)

    def begin_if_due(self) -> None:
        """Call while nothing uncommitted is merged or sealed.

        Raises:
            ImageDiffers: the last image was not the committed state.
        """
        if self.writing or self._committer.chain.new_pointer is not None:
            return
        self._raise_fatal()
        if self._missing:
            self._fail_waiting(self._missing)
            return
        reason = self._wanted or self._due()
        if reason is None:
            return
        if self._waiting and not (self.changed or self.fallback_pending or self._needed):
            if not self._watch.is_to_look:
                self._skip()
            return
        self._task = asyncio.get_running_loop().create_task(self._write(self._mark(reason)))

    async def write_now(self, reason: str, *, even_unchanged: bool = False) -> None:
        """Finish the one under way, then write the last one; its pointer waits in the chain."""
        await self._adopter.close()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._raise_fatal()
        if (self.changed or even_unchanged) and not self._missing:
            await self._write(self._mark(reason))

    def topic_changed(self, change: TopicChange | None) -> None:
        """Note that the snapshots topic is missing, or another one than the chain says; None: neither. Processing
        goes on: the increments hold the changes, and when the topic exists again it gets the whole state at once."""
        if change is None:
            self._missing = ""
            self._watch.topic_missing(self._unsaved)
            return
        if self._task is not None:
            self._task.cancel()  # its chunks lie in the old topic
            self._records, self._marked = self._records + self._marked, 0
        if change.found_id is None:
            command = ensure(app_name(self._context.app))
            self._missing = f"{change}: no snapshot can be written; {command} creates it"
            self._watch.topic_missing(self._missing)
            return
        log.warning(
            "partition %d: %s: the snapshots in it are gone, a new one is written",
            self._context.partition,
            change,
        )
        self._missing = ""
        self._adopter.topic_replaced()
        self._is_unsaved(str(change))
        self._committer.chain = self._committer.chain.in_new_topic(change.topic, change.found_id)
        self._wanted, self.fallback_pending, self._not_before = "retention", True, 0.0
        self.mended_from_batch = self._committer.chain.batch

    def _is_unsaved(self, why: str) -> None:
        """Note that the snapshots topic is a new one: nothing is recoverable before a snapshot in it is pointed to."""
        self._point_anew()
        self._unsaved = f"{why}: the snapshots in it are gone, a new one is being written"
        self._watch.topic_missing(self._unsaved)

    def committed(self, increment: Increment, record_count: int) -> None:
        """Take notice of a committed increment: its newest pointer, if new, now exists for everybody."""
        self._records += record_count
        for pointer, waiting in [p for p in self._pointing if p[0] in increment.pointers]:
            self._pointing.remove((pointer, waiting))
            self._now_pointed(pointer)
            self._trimmer.pointed(increment, self._committer.chain.last_offset)
            for done in waiting:
                done(OperationState.SUCCEEDED, pointer.snapshot_id, "")

    async def close(self) -> None:
        """Abandon what is being written, and tell everybody who waits."""
        await self._watch.close()
        await self._adopter.close()
        await self._trimmer.close()
        if self._task is not None:
            await cancel_and_wait(self._task)
        self._point_anew()
        self._fail_waiting("the partition was released before the snapshot was pointed to")

    def _point_anew(self) -> None:
        """Let whoever waits for a pointer wait for the next snapshot: no pointer leads to what was written."""
        self._waiting += [done for _, dones in self._pointing for done in dones]
        self._pointing = []

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting, self._wanted = self._waiting, [], None
        for done in waiting:
            done(OperationState.FAILED, None, why)

    def _want(self, found: Recoverability) -> bool:
        """Take a snapshot if the recoverability monitor needs one; say whether it was wanted. A snapshot under way
        may be all it needs: it will look again."""
        under_way = self.writing or self._committer.chain.new_pointer is not None
        if under_way or not (self.changed or found.even_unchanged):
            return False
        self._wanted = self._wanted or "retention"
        self._needed = found.even_unchanged
        return True

    def _outdate(self) -> None:
        """Want a snapshot, so that no recovery looks at what lies in the snapshots topic now."""
        self._wanted, self._needed = self._wanted or "retention", True

    def _raise_fatal(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.cancelled():
            task.result()

    def _due(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            return None
        if self.fallback_pending:
            return "fallback"
        since = SinceSnapshot(self._records, int((now - self._since) * 1000))
        context = self._context
        reason = snapshot_due(self._policy, since, context.app.app_id, context.partition)
        if reason is None or context.settings.snapshot.by != "jobs":
            return reason
        log.warning(
            "partition %d: no proposal was adopted for %.0f s and %d records, so the owner takes a snapshot itself"
            " (snapshot.by = jobs): look whether the job runs, and at rejected_proposals of the partition",
            context.partition,
            since.elapsed_ms / 1000,
            since.records,
        )
        context.metrics.proposal_ended("missed")
        return "safety_net"

    def _skip(self) -> None:
        pointers = self._committer.chain.last.pointers
        newest = pointers[0].snapshot_id if pointers else None
        waiting, self._waiting, self._wanted = self._waiting, [], None
        for done in waiting:
            done(OperationState.SKIPPED, newest, "nothing was applied since the newest snapshot")

    def _mark(self, reason: str) -> snapshot_writer.SnapshotMark:
        self._wanted, self._needed = None, False
        self._marked, self._records = self._records, 0
        self._since = asyncio.get_running_loop().time()
        return snapshot_writer.mark(self._store, self._committer.chain, reason)

    async def _write(self, marked: snapshot_writer.SnapshotMark) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            pointer = await snapshot_writer.write(self._context, marked, self._reporter)
        except SnapreplayError as error:
            self._failed(error, waiting)
            if error.reaction is Reaction.STOP:
                raise
        except BaseException:
            self._waiting += waiting  # `close` tells them
            raise
        else:
            self._pointer_ready(pointer, waiting)
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
        increment, positions = found.increment, self._committer.chain.last.positions
        since = min(self._records, records_between(increment.positions, positions))
        self._records, self._marked = since, self._records - since
        age_seconds = max(0, wall_ms() - increment.written_at_ms) / 1000
        self._since = max(self._since, asyncio.get_running_loop().time() - age_seconds)
        self._reporter.snapshot(_adopted(self._context.partition, found))
        self._pointer_ready(pointer_to(found.manifest, found.offset), [done])

    def _pointer_ready(self, pointer: Pointer, waiting: list[OnDone]) -> None:
        self._committer.chain = self._committer.chain.pointing_to(pointer)
        self._pointing.append((pointer, waiting))

    def _failed(self, error: SnapreplayError, waiting: list[OnDone]) -> None:
        """Count what was applied before the mark as unsaved again: at least one record, so that it is due later."""
        self._records, self._marked = self._records + max(1, self._marked), 0
        self._not_before = asyncio.get_running_loop().time() + RETRY_AFTER_SECONDS
        for done in waiting:
            done(OperationState.FAILED, None, error.message)

    def _now_pointed(self, pointer: Pointer) -> None:
        self._marked, self._unsaved = 0, ""
        self._watch.topic_missing(self._missing)
        if pointer.batch >= self.mended_from_batch:
            self.fallback_pending = False
            self._watch.saved()
        else:
            self._watch.look_at_once()
        self._unpointed_since = self._since
        status = self._reporter.status.snapshot
        if status is not None and status.snapshot_id == pointer.snapshot_id:
            pointed = msgspec.structs.replace(status, state=SnapshotState.POINTED)
            self._reporter.update(snapshot=pointed, last_pointed_snapshot_at=wall_time())


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
        settings.every_records or None,
        int(settings.every_seconds * 1000) or None,
        settings.jitter_ratio,
    )
    if settings.by == "jobs":
        given = safety_net(given)
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
