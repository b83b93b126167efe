"""The log lines that are repeated, by cause: the first one at once, then a sum once a minute. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from snapreplay.counted import counted

QUIET_SECONDS = 60.0
CAUSES_MAX = 100
"""With so many, the quiet ones are forgotten: a text may have other figures each time."""


class Repeated(Struct):
    """A log line, met `times` since the first one at `since`; `left_out` of them after the last one at `said_at`."""

    since: float
    said_at: float
    times: int = 1
    left_out: int = 0

    def more(self, now: float) -> str:
        """Return what to append to a repeated line: " (repeated 3 times in the last 60 s)"; "" for a new one."""
        if not self.left_out:
            return ""
        return f" (repeated {counted(self.left_out, 'time')} in the last {now - self.said_at:.0f} s)"


class Repeats:
    """Seconds come from one clock of the caller's. At most one line a minute is said of a cause."""

    def __init__(self) -> None:
        self.causes: dict[Hashable, Repeated] = {}

    def met(self, cause: Hashable, now: float) -> Repeated | None:
        """Count the cause once more. Returns what to say of it, None: nothing now. A cause with `times` 1 is new."""
        known = self.causes.get(cause)
        if known is None or (not known.left_out and now - known.said_at >= QUIET_SECONDS):
            if len(self.causes) >= CAUSES_MAX:
                self.forget(now)
            self.causes[cause] = known = Repeated(now, now)
            return known
        known.times += 1
        known.left_out += 1
        if now - known.said_at < QUIET_SECONDS:
            return None
        said = Repeated(known.since, known.said_at, known.times, known.left_out)
        known.said_at, known.left_out = now, 0
        return said

    def line(self, text: str, now: float) -> str | None:
        """Count the text itself as `met` does a cause; return the whole line."""
        said = self.met(text, now)
        return None if said is None else text + said.more(now)

    def forget(self, now: float) -> None:
        """Forget causes that were quiet for a minute."""
        self.causes = {cause: each for cause, each in self.causes.items() if now - each.said_at < QUIET_SECONDS}
