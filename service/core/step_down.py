"""The moment when a process that stepped down, because another one uses its instance id, may come back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 2.0, 30.0


@dataclass(frozen=True)
class SteppedDown:
    """A process out of the group, looking from time to time whether a member with our instance id is still there.

    Gone once is not gone: a process that is restarted in good order leaves the group and comes back. It has
    `return_seconds` for that, then it is looked for a second time.
    """

    return_seconds: float
    looks: int = 0  # in a row that found it, or got no answer
    gone: bool = False  # the last look did not find it
    over: bool = False  # nor did the look after that

    @property
    def pause_seconds(self) -> float:
        """The time until the next look: 2 s, 4 s … 30 s, and `return_seconds` when it was gone."""
        if self.gone:
            return self.return_seconds
        return float(min(LOOK_SECONDS_MAX, LOOK_SECONDS_MIN * 2 ** min(self.looks, 16)))

    def looked(self, *, there: bool | None) -> SteppedDown:
        """Count a look; None: nobody answered, which says nothing."""
        if there is False:
            return replace(self, looks=0, gone=True, over=self.gone)
        return replace(self, looks=self.looks + 1, gone=False)
