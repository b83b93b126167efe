"""The return of a state in memory that is the only copy into the log: which batch it is of, what is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from snapreplay.app.record import Output
from snapreplay.service.core.effects import BeginAnew
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement


@dataclass(frozen=True)
class Healing:
    """The healing of a log; `found` is what it ends with, None when it holds no increment; `topic_ids` are those of
    both own topics now; `outputs` are those of a batch that was not committed and cannot be undone: they are
    committed with the state."""

    found: FoundIncrement | None
    increments: str
    topic_ids: Mapping[str, str]
    outputs: tuple[Output, ...] = ()

    @staticmethod
    def doubt(kept: RetainedState, found: FoundIncrement | None) -> Warm | None:
        """Tell what became of the batch in doubt; None when only one of its outputs tells.

        Without outputs nobody outside can tell: a commit that was asked for counts as done.
        """
        if kept.doubtful is None:
            return Warm.KEPT
        if found is not None and found.increment == kept.doubtful:
            return Warm.MERGED
        if kept.ending is None or not kept.ending.asked:
            return Warm.DROPPED
        return Warm.MERGED if kept.ending.output is None else None

    def begin(self, kept: RetainedState) -> BeginAnew:
        """Return what to write once the store holds exactly the state after `kept.last`."""
        recorded = kept.last.topic_ids.get(self.increments, "")
        now = {name: each for name, each in self.topic_ids.items() if each}
        standing = msgspec.structs.replace(kept.last, topic_ids={**kept.last.topic_ids, **now})
        there = (
            f"ends with batch {self.found.increment.batch} at offset {self.found.offset}"
            if self.found is not None
            else "holds no increment"
        )
        replaced = now.get(self.increments, recorded) != recorded
        how = (
            "was deleted and created again"
            if replaced
            else "was cut, or nothing can be restored from it,"
        )
        problem = f"topic {self.increments} {how} and {there}; the state in memory is that of batch {kept.last.batch}"
        facts = {
            "batch": kept.last.batch,
            "recorded_id": recorded,
            "found_id": now.get(self.increments, ""),
            "found_batch": self.found.increment.batch if self.found is not None else None,
        }
        return BeginAnew(standing, self.outputs, problem, facts)


def settled(kept: RetainedState, doubt: Warm) -> tuple[FoundIncrement, Warm, tuple[Output, ...]]:
    """Return the batch that the state is to be of, how the store gets there, and the outputs that are still to be
    committed.

    A batch that was not committed and cannot be undone is done after all: its records are in the state.
    """
    doubtful, last = kept.doubtful, FoundIncrement(kept.last, kept.last_offset)
    if doubtful is None:
        return last, Warm.KEPT, kept.outputs
    if doubt is Warm.MERGED:
        return kept.held, Warm.MERGED, ()
    if kept.undoable:
        return last, Warm.DROPPED, ()
    return kept.held, Warm.MERGED, kept.outputs
