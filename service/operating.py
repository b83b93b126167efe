"""Lets a program ask its service as an operator does over HTTP: for operations, and for what has happened before."""

from __future__ import annotations

from collections.abc import Sequence

from snapreplay.service.control.histories import KeyHistory, PartitionHistory, ReadKeyHistory
from snapreplay.service.control.operations import (
    AdoptSnapshot,
    CancelOperation,
    Command,
    DrainProcess,
    DrillPartition,
    Operation,
    PausePartition,
    ResumePartition,
    RetryPartition,
    TriggerSnapshot,
    UndrainProcess,
)
from snapreplay.service.control.status import SnapshotStatus
from snapreplay.service.core.group_changes import GroupChange
from snapreplay.service.embedding import Views, ended
from snapreplay.service.service_control import ServiceControl
from snapreplay.state.keys import text_of

THE_PROGRAM = "the program"


class Operating:
    """The part of a `Service` that an operator has over HTTP, too. For the service's loop only, while it runs.

    Each method that begins an operation waits for its end, and returns it: its state is "succeeded", "failed" or
    "cancelled", and each of its parts says why. All are about this process and its partitions.
    """

    _control: ServiceControl
    _views: Views

    async def trigger_snapshot(self, partitions: Sequence[int] | None = None, reason: str = "") -> Operation:
        """Write full snapshots of these partitions (None: of all that are LIVE) and wait until they are pointed to.

        Returns:
            The ended operation; its state is "succeeded" or "failed".

        Raises:
            UnknownPartition, PartitionNotLive, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(TriggerSnapshot(None if partitions is None else tuple(partitions), reason))

    async def pause(self, partition: int, reason: str = "") -> Operation:
        """Process nothing more of a LIVE partition until `resume`, whatever is restarted meanwhile. The batch under
        way is committed.

        Raises:
            UnknownPartition, PartitionNotLive, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(PausePartition(partition, reason))

    async def resume(self, partition: int) -> Operation:
        """Process a paused partition again, from the next record on.

        Raises:
            UnknownPartition, PartitionNotLive, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(ResumePartition(partition))

    async def retry(self, partition: int) -> Operation:
        """Let a FAILED partition recover again, after the cause was repaired or accepted, and wait until it is LIVE.

        Raises:
            UnknownPartition, PartitionNotLive, NotFailed, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(RetryPartition(partition))

    async def adopt(self, partition: int, manifest_offset: int) -> Operation:
        """Judge a snapshot that a job proposes, by the offset of its manifest, and wait until it is pointed to or
        rejected.

        Raises:
            UnknownPartition, PartitionNotLive, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(AdoptSnapshot(partition, manifest_offset))

    async def drill(self, partition: int) -> Operation:
        """Restore a LIVE partition into a store that is thrown away, and compare the digests.

        Raises:
            UnknownPartition, PartitionNotLive, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(DrillPartition(partition))

    async def drain(self, reason: str = "") -> Operation:
        """Give all partitions to other processes before maintenance, and wait until they are gone. This one takes none
        until `undrain` or a restart, unless no other process is left.

        Returns:
            The ended operation; "cancelled" if it was undrained meanwhile.

        Raises:
            NoSuccessor, Busy, ServiceClosed: nothing was started.
        """
        return await self._ended(DrainProcess(by=THE_PROGRAM, reason=reason))

    async def undrain(self) -> None:
        """Take partitions again, when the group assigns them."""
        await self._ended(UndrainProcess(by=THE_PROGRAM))

    def operations(self) -> tuple[Operation, ...]:
        """List the last 1,000 operations of this process, newest first, whoever has begun them.

        Raises:
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return self._control.document().operations

    def cancel(self, operation_id: str) -> Operation:
        """Cancel what has not begun of an operation of this process.

        Raises:
            NotCancellable: it has ended, or nothing of it can be cancelled any more.
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return self._control.perform(CancelOperation(operation_id, by=THE_PROGRAM))

    def snapshots(self) -> tuple[SnapshotStatus, ...]:
        """List the last 500 full snapshots that this process wrote or used, newest first.

        Raises:
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return self._control.document().snapshots

    def group_changes(self) -> tuple[GroupChange, ...]:
        """List the last 50 generations of the group that this process was given, newest first.

        Raises:
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return self._control.document().group_changes

    async def history(self, partition: int) -> PartitionHistory:
        """Read from its log who has owned a partition, whichever process does now, which snapshots were pointed to, and
        what was decided about its state.

        Raises:
            UnknownPartition: the app has no such partition.
            NotReadable: its log cannot be read now.
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return await self._control.history(partition)

    async def key_history(
        self, partition: int, key: object, *, store: str = "default", limit: int = 20, before: int | None = None
    ) -> KeyHistory:
        """Read from the log of a partition which batches changed a key, newest first, with the value after each as it
        is stored.

        Args:
            store: of the key; "default" where the state is one map.
            limit: how many changes to return at most.
            before: `from_offset` of what was returned before, for what is older.

        Raises:
            UnknownPartition, UsageError: there is no such partition, store or key.
            NotReadable: its log cannot be read now.
            ServiceClosed: not started yet, or stopped.
        """
        self._views.check_open()
        return await self._control.key_history(ReadKeyHistory(store, text_of(key), partition, limit, before))

    async def _ended(self, command: Command) -> Operation:
        self._views.check_open()
        return await ended(self._control, command)
