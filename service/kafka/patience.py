"""How long a producer waits after a transaction before it begins the next one. Pure.

The answer to EndTxn comes before the markers are written, and until they are, the coordinator refuses a new transaction
of the same id (CONCURRENT_TRANSACTIONS). A producer that asks too early pays the pause before it asks again. How long
the markers take is a property of the cluster, so it is learned.
"""

from __future__ import annotations

from typing import NamedTuple

PATIENCE_MS_MAX = 2.0
"""A refused request is repeated after as much: to wait for longer never pays, however late some markers are."""
STEP_MS = 0.2
CALM_COUNT = 6
"""After so many transactions in a row that were not refused, a producer is less patient by a step; after one that was,
it is more patient by a step. So about one of ten is refused; fewer would cost more in pauses."""


class Patience(NamedTuple):
    """The pause for one coordinator, and how many transactions in a row it has not refused."""

    pause_ms: float = 0.0
    calm_count: int = 0

    def after(self, *, refused: bool, gap_ms: float) -> Patience:
        """Return what is learned from a transaction that began `gap_ms` after the end of the one before. One that began
        later than any pause shows nothing, unless it was refused all the same."""
        if refused:
            return Patience(min(self.pause_ms + STEP_MS, PATIENCE_MS_MAX))
        if gap_ms > PATIENCE_MS_MAX:
            return self
        if self.calm_count + 1 < CALM_COUNT:
            return Patience(self.pause_ms, self.calm_count + 1)
        return Patience(max(self.pause_ms - STEP_MS, 0.0))

    def rest_s(self, gap_s: float) -> float:
        """Return for how long to wait now, `gap_s` after the end of the transaction before."""
        return max(0.0, self.pause_ms / 1000 - gap_s)
