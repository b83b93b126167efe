"""What must be true while the history runs: what a process says of itself is what the log says."""

from __future__ import annotations

from collections.abc import Callable

from snapreplay.app import names
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program
from tests.simulation.log import Log
from tests.simulation.network import Network
from tests.simulation.process import Process

Failed = Callable[[Process, PartitionStatus], None]


class Watch:
    """Listens to the status of every process. `failed` hears of each partition that went FAILED."""

    def __init__(self, network: Network, failed: Failed) -> None:
        self._network, self._failed = network, failed
        self._before: dict[tuple[str, int], PartitionStatus] = {}
        self._recovered: set[tuple[str, int, int | None]] = set()
        self._increments: dict[tuple[str, int, int], Increment] = {}

    def attach(self, process: Process) -> None:
        process.board.subscribe(lambda status: self._look(process, status))

    def _look(self, process: Process, status: PartitionStatus) -> None:
        key = (process.name, status.partition)
        before = self._before.get(key)
        self._before[key] = status
        if process.dead:
            return
        if before is None or before.phase is not status.phase:
            self._entered(process, status)
        if status.phase is Phase.LIVE and (before is None or before.batch != status.batch):
            self._check_committed(process, status)

    def _entered(self, process: Process, status: PartitionStatus) -> None:
        network, restore = self._network, status.restore
        error = f": {status.error.kind}" if status.error else ""
        network.trace(process.name, f"partition {status.partition} {status.phase.value}{error}")
        network.met(f"phase {status.phase.value}")
        if status.phase is Phase.FAILED:
            self._failed(process, status)
        if status.phase is not Phase.LIVE or restore is None:
            return
        network.met(f"mode {restore.mode or 'none'}")
        network.met("start snapshot" if restore.snapshot else "start genesis")
        if restore.fallback_from is not None:
            network.met("fallback to an older snapshot")
        if restore.attempt > 1:
            network.met("recovery with several attempts")
        epoch = (process.name, status.partition, status.owner_epoch)
        if epoch not in self._recovered:  # a runner that ends may still report beside its successor
            self._recovered.add(epoch)
            self._check_found(process, status)

    def _check_found(self, process: Process, status: PartitionStatus) -> None:
        """The last increment that a recovery found is the last one committed before its claim."""
        epoch = status.owner_epoch if status.owner_epoch is not None else -1
        truth = self._last(status.partition, epoch)
        if status.batch == self._written_at(status.partition, epoch):
            return  # the state in memory, because an input was gone
        begun = len(self._network.broker.ids_of[names.increments_topic(program.APP_ID)]) > 1
        if status.batch != truth and not begun:  # else its chain may have begun anew behind it
            self._network.misused(
                f"{process.name} went LIVE on partition {status.partition} at batch {status.batch},"
                f" the last one before its claim at {epoch} is {truth}"
            )

    def _written_at(self, number: int, epoch: int) -> int | None:
        """Batch of the increment that a recovery wrote itself, behind its claim: it has no records."""
        topic = names.increments_topic(program.APP_ID)
        topic_id = self._network.broker.ids_of[topic][-1]
        log = self._network.broker.by_id[topic_id][number]
        for offset in range(epoch + 1, log.end):
            record = log.visible(offset, committed_only=True)
            if record is not None and kind_of(record.value or b"") is RecordKind.INCREMENT:
                found = self._decoded(topic_id, number, offset, record.value or b"")
                return found.batch if found.owner_epoch == epoch and not found.ranges else None
        return None

    def _check_committed(self, process: Process, status: PartitionStatus) -> None:
        """Reported committed: it is."""
        truth = self._last(status.partition, None)
        if truth is None or status.batch is None or status.batch > truth:
            self._network.misused(
                f"{process.name} reports batch {status.batch} of partition {status.partition},"
                f" committed is {truth}"
            )

    def _last(self, number: int, before_offset: int | None) -> int | None:
        """Batch of the last committed increment below an offset, by a full scan from the end."""
        broker, topic = self._network.broker, names.increments_topic(program.APP_ID)
        ids = broker.ids_of[topic]
        if before_offset is None:  # also in those that are gone
            found = [self._last_in(broker.by_id[each][number], each, number, None) for each in ids]
            return max((each for each in found if each is not None), default=None)
        return self._last_in(broker.by_id[ids[-1]][number], ids[-1], number, before_offset)

    def _last_in(self, log: Log, name: str, number: int, before_offset: int | None) -> int | None:
        offset = log.end if before_offset is None else min(before_offset, log.end)
        while offset > 0:
            offset -= 1
            record = log.visible(offset, committed_only=True)
            if record is not None and kind_of(record.value or b"") is RecordKind.INCREMENT:
                return self._decoded(name, number, offset, record.value or b"").batch
        return None

    def _decoded(self, name: str, number: int, offset: int, value: bytes) -> Increment:
        found = self._increments.get((name, number, offset))
        if found is None:
            entry = decode(value)
            if not isinstance(entry, Increment):
                raise AssertionError(f"no increment: {entry!r}")
            found = self._increments[name, number, offset] = entry
        return found
