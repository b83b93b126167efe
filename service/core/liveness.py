"""Judges whether one peer lives, by its answers. Pure. A mistake costs a takeover, a death that is not noticed
the session timeout. A peer that never answered, or whose address leads elsewhere by now, is never suspected."""

from __future__ import annotations

from enum import StrEnum

REFUSED_SECONDS = 0.15
"""Refused connections mean death only after so long: one refusal alone does not."""


class PeerState(StrEnum):
    """Says whether a process of the group can be asked."""

    SELF = "self"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    DEAD = "dead"
    ENDED = "ended"
    NO_ADDRESS = "no_address"
    WRONG_ADDRESS = "wrong_address"


class Life:
    """The judgement on one peer so far."""

    def __init__(self, now: float, suspect_seconds: float) -> None:
        """Take `suspect_seconds`: a peer that is silent for so long seems to be dead."""
        self.state = PeerState.UNREACHABLE
        self.error = "it has not been reached yet"
        self.since = now
        self._suspect_seconds = suspect_seconds
        self._answered_at = now
        self._silent_at: float | None = None  # then it will have been silent for too long; None: it is not watched
        self._refused_at: float | None = None

    @property
    def is_watched(self) -> bool:
        """Whether it has answered and has not been suspected since."""
        return self._silent_at is not None

    def silent_seconds(self, now: float) -> float:
        """Return for how long its service has been silent, for any reason."""
        return now - self._answered_at

    def answered(self, now: float, silent_seconds: float) -> None:
        """Note an answer of the peer, which says that its service has been silent for so long."""
        self._refused_at = None
        if silent_seconds < self._suspect_seconds:
            self._answered_at = now - silent_seconds
            self._silent_at = now - silent_seconds + self._suspect_seconds
            self._become(now, PeerState.REACHABLE, "")
        elif self._silent_at is not None:
            self._silent_at = min(self._silent_at, now)
        elif self.state is not PeerState.DEAD:
            self._become(now, PeerState.UNREACHABLE, f"its service has been silent for {silent_seconds:.1f} s")

    def lost(self, now: float, why: str) -> None:
        """Note that it cannot be reached, for now."""
        self._refused_at = None
        self._note(now, why)

    def refused(self, now: float, why: str) -> str | None:
        """Note that its address refuses connections. Returns why it seems to be dead, if it does since now."""
        self._note(now, why)
        if self._silent_at is None:
            return None
        if self._refused_at is None:
            self._refused_at = now
        if now - self._refused_at < REFUSED_SECONDS:
            return None
        return self._suspect(now, f"its stream ended, and {why}")

    def ended(self, now: float) -> None:
        """Hear its bye."""
        self._silent_at = self._refused_at = None
        self._become(now, PeerState.ENDED, "it has stopped gracefully")

    def elsewhere(self, now: float, state: PeerState, why: str) -> None:
        """Note that something else answers there. A peer that is dead or has ended stays so: its successor may answer
        there."""
        self._silent_at = self._refused_at = None
        if self.state not in (PeerState.DEAD, PeerState.ENDED):
            self._become(now, state, why)

    def due(self, now: float) -> str | None:
        """Say why it seems to be dead, if it does since now."""
        if self._silent_at is None or now < self._silent_at:
            return None
        return self._suspect(now, f"silent for {now - self._silent_at + self._suspect_seconds:.1f} s")

    def overslept(self, seconds: float) -> None:
        """Leave out a time in which we could not have received an answer."""
        if self._silent_at is not None:
            self._silent_at += seconds
        if self._refused_at is not None:
            self._refused_at += seconds

    def _note(self, now: float, why: str) -> None:
        if self.state in (PeerState.REACHABLE, PeerState.UNREACHABLE, PeerState.WRONG_ADDRESS):
            self._become(now, PeerState.UNREACHABLE, why)

    def _suspect(self, now: float, why: str) -> str:
        self._silent_at = self._refused_at = None
        self._become(now, PeerState.DEAD, why)
        return why

    def _become(self, now: float, state: PeerState, error: str) -> None:
        if state is not self.state:
            self.since = now
        self.state, self.error = state, error
