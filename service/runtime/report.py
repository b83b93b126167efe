"""The facts of a partition, and its status, a view of them and of much else: each change publishes all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from snapreplay.counted import counted
from snapreplay.errors import AccessError, RecordError, SnapreplayError
from snapreplay.service.clock import wall_time
from snapreplay.service.control.counters import PartitionMetrics, Result
from snapreplay.service.control.status import (
    PartitionError,
    PartitionStatus,
    RecoveryStatus,
    RejectedProposal,
    SnapshotStatus,
    StatusBoard,
    StoreStatus,
)
from snapreplay.service.core.kafka_errors import ClockRefused
from snapreplay.service.core.phase import Phase, may_follow
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.runtime.free_memory import lacks_memory
from snapreplay.service.runtime.progress import RestoreRecord
from snapreplay.state.composite import Store

log = logging.getLogger("snapreplay.partition")


def problem_of(error: BaseException) -> PartitionError:
    """Return the error as people see it; anything outside the error tree is shown as a defect,
    but for a lack of memory."""
    if isinstance(error, SnapreplayError):
        kept_out = isinstance(error, AccessError | ClockRefused)
        known = error.record_id if isinstance(error, RecordError) else error.facts.get("record_id")
        return PartitionError(
            type(error).__name__,
            error.message,
            f"{error.hint}; no restart is needed" if kept_out else error.hint,
            error.reaction.value,
            "" if known is None else str(known),
            wall_time(),
        )
    if lacks_memory(error):
        hint = (
            "raise its memory limit (`ulimit -v`, or the container's) and start it again; or run more processes,"
            " each of which holds fewer partitions, and `snapreplay retry`. docs/state.md says how much a state takes"
        )
        said = "this process cannot get more memory"
        return PartitionError(MemoryError.__name__, said, hint, "stop", "", wall_time())
    hint = "this is a defect of snapreplay: please report it with the traceback from the log"
    return PartitionError(type(error).__name__, repr(error), hint, "stop", "", wall_time())


class Facts(msgspec.Struct, frozen=True):
    """The facts about a partition of this process that decisions depend on; the status is never read for them.
    `owner_epoch`: the offset of the newest claim. `pointed`: the newest snapshot that got its pointer in this process.
    """

    phase: Phase = Phase.ASSIGNED
    owner_epoch: int | None = None
    rejected_proposals: tuple[RejectedProposal, ...] = ()
    pointed: SnapshotStatus | None = None


class Reporter(RestoreRecord):
    """Keeps the facts of one partition and publishes its status; only its runner, and what that runs, calls it. Any
    thread may read the `facts`."""

    def __init__(self, board: StatusBoard, partition: int, on_claim: Callable[[int], None] = lambda _: None) -> None:
        """Take `on_claim`, which is called with each new owner epoch."""
        super().__init__()
        self._board, self._on_claim = board, on_claim
        self.facts = Facts()
        self.status = PartitionStatus(partition=partition, phase=Phase.ASSIGNED)
        self.failures = Failures(partition)
        self._largest: dict[str, int] = {}  # store → bytes of its largest entry so far
        self.update()

    def update(self, **changes: Any) -> None:
        self.status = msgspec.structs.replace(self.status, updated_at=wall_time(), **changes)
        self._board.publish(self.status)

    def phase(self, phase: Phase) -> None:
        """Enter a phase; staying in it is no change. Only LIVE keeps a doubt from before."""
        before = self.facts.phase
        if phase is before:
            return
        if not may_follow(before, phase):
            raise AssertionError(f"{before} cannot be followed by {phase}")
        super().phase(phase)
        self.facts = replace(self.facts, phase=phase)
        doubt = self.status.ownership_doubt if phase is Phase.LIVE else ""
        self.update(phase=phase, restore=self.recovery, ownership_doubt=doubt)

    def claimed(self, owner_epoch: int) -> None:
        self.facts = replace(self.facts, owner_epoch=owner_epoch)
        self.update(owner_epoch=owner_epoch)
        self._on_claim(owner_epoch)

    def rejected(self, proposals: tuple[RejectedProposal, ...]) -> None:
        """Note the proposals of jobs that were rejected, the newest first."""
        self.facts = replace(self.facts, rejected_proposals=proposals)
        self.note(rejected_proposals=proposals)

    def pointed(self, snapshot: SnapshotStatus) -> None:
        """Note that a committed increment points to this snapshot."""
        self.facts = replace(self.facts, pointed=snapshot)
        self.update(snapshot=snapshot, last_pointed_snapshot_at=wall_time())

    def started(self) -> None:
        super().started()
        self.update(restore=self.recovery)

    def went_live(self, metrics: PartitionMetrics) -> None:
        """End the recovery, and the failures before it."""
        used = self.recovery.snapshot if self.recovery else None
        if self.recovery is not None and self.recovery.warm is None:
            self.update(last_pointed_snapshot_at=used.created_at if used else None)
        self.update(error=None)
        self.restore(finished_at=wall_time(), progress=None)
        self.phase(Phase.LIVE)
        self.failures.over()
        status = self.status
        restore = self.recovery or RecoveryStatus()
        mode = "warm" if restore.warm else restore.mode
        seconds = sum(restore.seconds_per_phase.values())
        metrics.restore_ended(Result.SUCCEEDED, mode, seconds=seconds)
        log.info(
            "partition %d LIVE at batch %s, owner epoch %s, after %.3f s by %s",
            status.partition,
            status.batch,
            status.owner_epoch,
            seconds,
            f"memory ({restore.warm})" if restore.warm else mode or "snapshot",
        )

    def restore(self, **facts: Any) -> None:
        super().restore(**facts)
        if self.recovery is not None:
            self.update(restore=self.recovery)

    def waiting_for(self, what: str) -> None:
        """Show what the present phase is waiting for; empty: nothing any more. Logged the first time."""
        if what and self.recovery is not None and not self.recovery.waiting_for:
            log.warning("partition %d: %s", self.status.partition, what)
        super().waiting_for(what)

    def snapshot(self, status: SnapshotStatus) -> None:
        self.update(snapshot=status)

    def note(self, **changes: Any) -> None:
        """Publish with these fields changed, but not as progress: `updated_at` stays."""
        before, self.status = self.status, msgspec.structs.replace(self.status, **changes)
        if self.status != before:
            self._board.publish(self.status)

    def count(self, applied: int, skipped: int, timers: int = 0, expired: int = 0, outputs: int = 0) -> None:
        """Add to this process's totals; published with the next change."""
        self.status = msgspec.structs.replace(
            self.status,
            records_total=self.status.records_total + applied,
            skipped_total=self.status.skipped_total + skipped,
            timers_total=self.status.timers_total + timers,
            expired_total=self.status.expired_total + expired,
            outputs_total=self.status.outputs_total + outputs,
        )

    def entries(self, largest: Mapping[str, int]) -> None:
        """Note the bytes of the largest entry of each store, loaded or committed; published with the next change."""
        for name, size_bytes in largest.items():
            self._largest[name] = max(size_bytes, self._largest.get(name, 0))

    def state(self, store: Store) -> None:
        """Note how large the state is, and what is due in it; published with the next change."""
        timetable = store.timetable
        due = timetable.next_due_ms if timetable is not None else {}
        sizes, largest = store.sizes, self._largest
        self.status = msgspec.structs.replace(
            self.status,
            state_entries=sum(one.entries for one in sizes),
            state_bytes=sum(one.size_bytes for one in sizes),
            state_largest_entry_bytes=max(largest.values(), default=0),
            stores=tuple(
                StoreStatus(one.name, one.entries, one.size_bytes, largest.get(one.name, 0), due.get(one.name))
                for one in sizes
            ),
            timers_pending=timetable.pending_timers if timetable is not None else 0,
            next_due_ms=min(due.values(), default=None),
        )

    def failed(self, error: BaseException) -> None:
        self.update(error=problem_of(error))

    def died(self, error: BaseException) -> None:
        """Show that the runner ended with a defect: FAILED, even after CLOSED, which nothing follows otherwise."""
        self.facts = replace(self.facts, phase=Phase.FAILED)
        self.update(phase=Phase.FAILED, error=problem_of(error))

    def retrying(self, error: SnapreplayError) -> None:
        """Show in the status that it failed and is tried again, and log it in sums."""
        self.failed(error)
        self.failures.retried(error)


class Failures:
    """The log lines about the failures of a partition, in the runners' loop."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._repeats = Repeats()
        self._times = 0  # since `over`
        self._since = 0.0
        self._last = ""

    def retried(self, error: SnapreplayError) -> None:
        """Log a failure after which it is tried again."""
        now = asyncio.get_running_loop().time()
        if not self._times:
            self._since = now
        self._times += 1
        self._last = f"{type(error).__name__}: {error.message}"
        said = self._repeats.met(self._last, now)
        if said is None:
            return
        text = f"{type(error).__name__}: {error}" if said.times == 1 else self._last
        again = said.more(now)
        log.warning("partition %d: %s%s; trying again", self._partition, text, again)

    def over(self) -> None:
        """Log that the partition is LIVE again. Logs nothing if nothing failed before."""
        if self._times:
            log.info(
                "partition %d: recovered after %s in %.1f s, the last one %s",
                self._partition,
                counted(self._times, "failure"),
                asyncio.get_running_loop().time() - self._since,
                self._last,
            )
        self._repeats, self._times = Repeats(), 0

    def final(self, error: BaseException, *, hint_is_logged: bool) -> None:
        """Log that the partition is FAILED. `hint_is_logged`: its hint was already logged, once for all partitions."""
        problem = problem_of(error)
        is_defect = problem.kind == type(error).__name__ and not isinstance(error, SnapreplayError | MemoryError)
        message = problem.message if hint_is_logged or not problem.hint else f"{problem.message} ({problem.hint})"
        said = str(error) if is_defect else message
        log.error("partition %d FAILED: %s: %s", self._partition, problem.kind, said)
