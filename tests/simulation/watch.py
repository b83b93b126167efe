"""The watch over what must be true while the history runs: what a process says of itself is what the log says."""

from collections.abc import Callable

from snapreplay.app import names
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program, told
from tests.simulation.log import Log
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.program import INCREMENTS

Failed = Callable[[Process, PartitionStatus], None]


class Watch:
    """Listens to the status of every process. `failed` hears of each partition that went FAILED."""

    def __init__(self, network: Network, failed: Failed) -> None:
        self._network, self._failed = network, failed
        self._before: dict[tuple[str, int], PartitionStatus] = {}
        self._recovered: set[tuple[str, int, int | None]] = set()

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
        if restore.attempts > 1:
            network.met("recovery with several attempts")
        epoch = (process.name, status.partition, status.owner_epoch)
        if epoch not in self._recovered:  # a runner that ends may still report beside its successor
            self._recovered.add(epoch)
            self._check_found(process, status)

    def _check_found(self, process: Process, status: PartitionStatus) -> None:
        """The last increment that a recovery found is the last one committed before its claim."""
        epoch = status.owner_epoch if status.owner_epoch is not None else -1
        truth = self._last(status.partition, epoch)
        if status.batch in self._written_at(status.partition, epoch):
            return  # the state in memory, because an input was gone; an upgrade; an input that appeared
        logs = self._logs(status.partition)
        self._check_schema(process, status, epoch, logs[-1])
        begun = len(logs) > 1 or logs[-1].was_cut
        if status.batch != truth and not begun:  # else its chain may have begun again behind it
            self._network.misused(
                f"{process.name} went LIVE on partition {status.partition} at batch {status.batch},"
                f" the last one before its claim at {epoch} is {truth}"
            )

    def _check_schema(self, process: Process, status: PartitionStatus, epoch: int, log: Log) -> None:
        """Check that who goes LIVE stores what is stored: neither older code, nor newer code without an upgrade."""
        known = (each for _, each in told.newest(log, Increment) if each.owner_epoch <= epoch)
        last, own = next(known, None), process.app.schema_version
        if last is not None and not log.was_cut and last.origin.schema_version != own:
            where = f"{process.name} went LIVE on partition {status.partition} with schema_version {own}"
            self._network.misused(f"{where}, batch {last.batch} has {last.origin.schema_version}")

    def _written_at(self, number: int, epoch: int) -> set[int]:
        """Batches of the increments, two at most, that a recovery wrote itself behind its claim: they have no records.
        The second one, of an input that appeared, has a decision."""
        behind = [each for at, each in told.newest(self._logs(number)[-1], Increment) if at > epoch]
        first, second = behind[-1:], [each for each in behind[-2:-1] if each.changes_inputs]
        return {each.batch for each in (*first, *second) if each.owner_epoch == epoch and not each.ranges}

    def _check_committed(self, process: Process, status: PartitionStatus) -> None:
        """Check what was reported committed: it is, unless its coordinator has forgotten it."""
        if names.transactional_id(program.APP_ID, status.partition) in self._network.broker.torn:
            return
        truth = self._last(status.partition, None)
        if truth is None or status.batch is None or status.batch > truth:
            self._network.misused(
                f"{process.name} reports batch {status.batch} of partition {status.partition}, committed is {truth}"
            )

    def _last(self, number: int, below: int | None) -> int | None:
        """Batch of the last committed increment below an offset of today's topic, or anywhere, also in topics that are
        gone; by a full scan from the end."""
        logs = self._logs(number)
        if below is not None:
            return next((each.batch for _, each in told.newest(logs[-1], Increment, below)), None)
        found = (next((each.batch for _, each in told.newest(log, Increment)), None) for log in logs)
        lost = (each.batch for log in logs if log.was_cut for each, _ in told.ever(log) if isinstance(each, Increment))
        return max((each for each in (*found, *lost) if each is not None), default=None)

    def _logs(self, number: int) -> list[Log]:
        broker = self._network.broker
        return [broker.by_id[each][number] for each in broker.ids_of[INCREMENTS]]
