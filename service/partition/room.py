"""Refuses to load a warm copy that would not find a place in memory: it would end the process, and its own partitions
with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapreplay.errors import RetryableError
from snapreplay.service.control.status import SnapshotUsed
from snapreplay.service.core.phase import Phase
from snapreplay.service.runtime.free_memory import ROOT, available_bytes, memory_of
from snapreplay.service.runtime.progress import RestoreProgress
from snapreplay.state.contract import Store


class NoRoom(RetryableError):
    """A warm copy takes more memory than is free."""


class Room(RestoreProgress):
    """Watches the load of a copy into `store`.

    A manifest says how many entries there are, but not their size. So the rest is judged by the part that is loaded.
    """

    def __init__(self, store: Store, begins: Callable[[], None]) -> None:
        """Take `begins`, which is called when the store is about to lose what it holds."""
        self._store = store
        self._begins = begins
        self._entries = 0

    def phase(self, phase: Phase) -> None:
        """Hear that the load begins."""
        if phase is Phase.LOADING:
            self._begins()

    def restore(self, **facts: Any) -> None:
        """Learn of the snapshot."""
        used = facts.get("snapshot")
        if isinstance(used, SnapshotUsed):
            self._entries = used.entries

    def progress(self, unit: str, from_: int, current: int, target: int) -> None:
        """Hear that a part of the snapshot is loaded; before the first one, that nothing is.

        Raises:
            NoRoom: what is left of the state takes more than is free.
        """
        available = available_bytes(ROOT) if unit == "bytes" else None
        if available is None or target == from_:
            return
        # At first only the compressed size is known: the entries have at least that.
        whole = self._store.size_bytes * target // current if current else target
        needed = memory_of(whole, self._entries) * (target - current) // target
        if needed > available:
            what = f"the rest of the copy, of which {current / target:.0%} are loaded," if current else "the copy"
            raise NoRoom(f"{what} takes about {needed:,} bytes of memory, and {available:,} are free")
