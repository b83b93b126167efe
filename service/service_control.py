"""`Control` over a running service: answers from statuses and counters, never waits for the runners' loop."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import snapreplay
from snapreplay.service.clock import wall_seconds
from snapreplay.service.control import (
    Check,
    NotOwned,
    Operation,
    ServiceFacts,
    UnknownPartition,
)
from snapreplay.service.core.phase import Phase
from snapreplay.service.operations import Operations
from snapreplay.service.partition.context import ClusterView, Identity
from snapreplay.service.partition.snapshot_keeper import OnDone
from snapreplay.service.status import PartitionStatus, SnapshotStatus, StatusBoard
from snapreplay.snapshots.errors import SnapreplayError
from snapreplay.snapshots.program.app import App

SNAPSHOTS_KEPT = 500
STUCK_SECONDS = 600.0  # a handler may block for minutes; a loop that is silent for longer is dead
BEAT_SECONDS = 1.0

RequestSnapshot = Callable[[int, str, OnDone], None]


class ServiceControl:
    """Thread-safe. The service tells it what happens; HTTP asks it."""

    def __init__(
        self,
        app: App[Any],
        identity: Identity,
        board: StatusBoard,
        request_snapshot: RequestSnapshot,
        membership_trouble: Callable[[], str | None],
    ) -> None:
        self._app = app
        self._identity = identity
        self._board = board
        self._request_snapshot = request_snapshot
        self._membership_trouble = membership_trouble
        self._operations = Operations()
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[str, SnapshotStatus] = OrderedDict()
        self._view: ClusterView | None = None
        self._assigned: set[int] | None = None
        self._duplicate: SnapreplayError | None = None
        self._beat_at = wall_seconds()
        self._beating: asyncio.Task[None] | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.unreachable_reason: str | None = None
        board.subscribe(self._remember)

    # ---- what HTTP asks ----

    def facts(self) -> ServiceFacts:
        view = self._view
        return ServiceFacts(
            app_id=self._app.app_id,
            app_version=self._app.version,
            version=snapreplay.__version__,
            instance_id=self._identity.instance_id,
            process_id=self._identity.process_id,
            host=self._identity.host,
            started_at=self._identity.started_at_ms / 1000,
            cluster_id=view.cluster_id if view else None,
            partition_count=view.partition_count if view else None,
        )

    def partitions(self) -> Sequence[PartitionStatus]:
        return self._board.all()

    def snapshots(self) -> Sequence[SnapshotStatus]:
        with self._lock:
            return list(reversed(self._snapshots.values()))

    def trigger_snapshot(self, partitions: Sequence[int] | None, reason: str) -> Operation:
        wanted = self._wanted(partitions)
        operation = self._operations.create("snapshot", reason, wanted)
        for number in wanted:
            self._request_snapshot(number, "trigger", self._reporter_of(operation.id, number))
        return self._operations.get(operation.id) or operation

    def operation(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id)

    def operations(self) -> Sequence[Operation]:
        return self._operations.all()

    def live_checks(self) -> Sequence[Check]:
        age = wall_seconds() - self._beat_at
        return [Check("runner loop", age < STUCK_SECONDS, f"last turn {age:.1f} s ago")]

    def ready_checks(self) -> Sequence[Check]:
        reached = self.unreachable_reason or ("reached" if self._view else "not reached yet")
        trouble = self._membership_trouble()
        member = self._assigned is not None and trouble is None
        checks = [
            Check("cluster", self._view is not None and self.unreachable_reason is None, reached),
            Check("member", member, trouble or "of the app's group"),
            Check("instance id", self._duplicate is None, str(self._duplicate or "")),
        ]
        return [
            *checks,
            *(self._partition_check(number) for number in sorted(self._assigned or ())),
        ]

    # ---- what the service tells ----

    def reached(self, view: ClusterView) -> None:
        self._view, self.unreachable_reason = view, None
        self._wake()

    def unreachable(self, error: SnapreplayError) -> None:
        self.unreachable_reason = error.message
        self._wake()

    def member_of(self, partitions: set[int]) -> None:
        self._assigned = set(partitions)
        self._wake()

    def duplicate(self, error: SnapreplayError) -> None:
        self._duplicate = error
        self._wake()

    def ready(self) -> bool:
        return all(check.ok for check in self.ready_checks())

    @contextmanager
    def changes(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
        """An event of `loop` that is set at every change, for the length of the block."""
        waiting = (loop, asyncio.Event())
        self._waiting.append(waiting)
        try:
            yield waiting[1]
        finally:
            self._waiting.remove(waiting)

    def beat_every_second(self, loop: asyncio.AbstractEventLoop) -> None:
        """Shows from other threads that the runners' loop turns."""
        self._beating = loop.create_task(self._beat())

    def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            self._beat_at = wall_seconds()
            self._wake()  # trouble of the membership comes and goes without a word
            await asyncio.sleep(BEAT_SECONDS)

    # ---- inside ----

    def _wanted(self, partitions: Sequence[int] | None) -> list[int]:
        if partitions is None:
            return [s.partition for s in self._board.all() if s.phase is Phase.LIVE]
        count = self._view.partition_count if self._view else None
        for number in partitions:
            if number < 0 or (count is not None and number >= count):
                raise UnknownPartition(number, count)
            status = self._board.get(number)
            if status is None:
                raise NotOwned(number, "this process does not own it")
            if status.phase is not Phase.LIVE:
                raise NotOwned(number, f"it is {status.phase.value}")
        return sorted(set(partitions))

    def _reporter_of(self, operation_id: str, partition: int) -> OnDone:
        def done(state: str, snapshot_id: str | None, detail: str) -> None:
            self._operations.report(operation_id, partition, state, snapshot_id, detail)
            self._wake()

        return done

    def _partition_check(self, number: int) -> Check:
        status = self._board.get(number)
        phase = status.phase if status is not None else Phase.ASSIGNED
        return Check(f"partition {number}", phase is Phase.LIVE, phase.value)

    def _remember(self, status: PartitionStatus) -> None:
        with self._lock:
            used = _used(status)
            if used is not None:
                self._snapshots.setdefault(used.snapshot_id, used)
            if status.snapshot is not None:
                self._snapshots[status.snapshot.snapshot_id] = status.snapshot
            while len(self._snapshots) > SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        self._wake()

    def _wake(self) -> None:
        for loop, event in tuple(self._waiting):
            loop.call_soon_threadsafe(event.set)


def _used(status: PartitionStatus) -> SnapshotStatus | None:
    """What a LIVE partition was restored from. Who wrote it and why, only its writer knew."""
    used = status.restore.snapshot if status.restore and status.phase is Phase.LIVE else None
    if used is None:
        return None
    return SnapshotStatus(
        status.partition,
        used.snapshot_id,
        "pointed",
        "restored",
        used.batch,
        started_at=used.created_at,
        finished_at=used.created_at,
        entries=used.entries,
        chunks=used.chunks,
        size_bytes=used.size_bytes,
        manifest_offset=used.manifest_offset,
    )
