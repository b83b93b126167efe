"""The wish for a full snapshot: why one is wanted, and who hears when it is pointed to."""

from __future__ import annotations

from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.snapshots.format.records import Pointer


class SnapshotRequests:
    """Belongs to the `SnapshotScheduler` of one LIVE incarnation.

    Attributes:
        reason: why a snapshot is wanted; None: it is not.
        is_needed: also if nothing was applied: the newest one cannot be used any more.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.is_needed = False
        self._waiting: list[OnDone] = []
        self._pointing: list[tuple[Pointer, list[OnDone]]] = []

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for the next snapshot."""
        return bool(self._waiting)

    def want(self, reason: str, *, is_needed: bool) -> None:
        self.reason, self.is_needed = self.reason or reason, is_needed

    def await_next(self, reason: str, done: OnDone) -> None:
        """Want a snapshot, and tell `done` what becomes of it."""
        self.reason = self.reason or reason
        self._waiting.append(done)

    def marked(self) -> None:
        """Note that the snapshot that was wanted is being taken."""
        self.reason, self.is_needed = None, False

    def take(self) -> list[OnDone]:
        """Hand over who waits."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def take_back(self, waiting: list[OnDone]) -> None:
        """Let them wait for the next snapshot."""
        self._waiting += waiting

    def pointing(self, pointer: Pointer, waiting: list[OnDone]) -> None:
        """Tell them once an increment with this pointer is committed."""
        self._pointing.append((pointer, waiting))

    def point_anew(self) -> None:
        """Let whoever waits for a pointer wait for the next snapshot: no pointer leads to what was written."""
        self._waiting += [done for _, dones in self._pointing for done in dones]
        self._pointing = []

    def pointed(self, pointers: list[Pointer]) -> list[tuple[Pointer, list[OnDone]]]:
        """Return those that exist for everybody now, and who waits for them."""
        found = [each for each in self._pointing if each[0] in pointers]
        self._pointing = [each for each in self._pointing if each not in found]
        return found

    def end(self, state: OperationState, snapshot_id: str | None, detail: str) -> None:
        """Withdraw the wish, and tell everybody who waits."""
        self.reason = None
        for done in self.take():
            done(state, snapshot_id, detail)
