"""The full snapshots that the partitions of a process wrote or used. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from snapreplay.service.control.status import PartitionStatus, SnapshotStatus
from snapreplay.service.core.phase import Phase

SNAPSHOTS_KEPT = 500


class SnapshotsSeen:
    """Keeps the newest `SNAPSHOTS_KEPT`, each by its id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[str, SnapshotStatus] = OrderedDict()

    def all(self) -> Sequence[SnapshotStatus]:
        """List them, newest first."""
        with self._lock:
            return list(reversed(self._snapshots.values()))

    def add(self, status: PartitionStatus) -> None:
        """Note the snapshots that a partition's status names."""
        used = status.restore.snapshot if status.restore and status.phase is Phase.LIVE else None
        with self._lock:
            if used is not None and used.snapshot_id not in self._snapshots:
                self._snapshots[used.snapshot_id] = SnapshotStatus.restored(status.partition, used)
            if status.snapshot is not None:
                self._snapshots[status.snapshot.snapshot_id] = status.snapshot
            while len(self._snapshots) > SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
