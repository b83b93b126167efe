"""The wishes for a full snapshot, and those who wait for it."""

from __future__ import annotations

from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.snapshots.format.records import Pointer


class SnapshotRequests:
    """The wish for a full snapshot.

    Attributes:
        reason: why one is wanted; None: it is not.
        is_needed: also if nothing was applied: the newest one cannot be used any more.
        waiting: those who hear of the next snapshot.
        pointing: those who hear once an increment with this pointer is committed.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.is_needed = False
        self.waiting: list[OnDone] = []
        self.pointing: list[tuple[Pointer, list[OnDone]]] = []

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

    def point_anew(self) -> None:
        """Let whoever waits for a pointer wait for the next snapshot: no pointer leads to what was written."""
        self.waiting += [done for _, dones in self.pointing for done in dones]
        self.pointing = []

    def pointed(self, pointers: list[Pointer]) -> list[tuple[Pointer, list[OnDone]]]:
        """Return those that exist for everybody now, and who waits for them."""
        found = [each for each in self.pointing if each[0] in pointers]
        self.pointing = [each for each in self.pointing if each not in found]
        return found

    def end(self, state: OperationState, snapshot_id: str | None, detail: str) -> None:
        """Withdraw the wish, and tell everybody who waits."""
        self.reason = None
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(state, snapshot_id, detail)
