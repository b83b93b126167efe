"""A change of the inputs of a partition: the increment that adds or retires them, in the chain as it is. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.counted import SOME, some
from snapreplay.service.core.chain import decided_at
from snapreplay.service.core.retained import needs_inputs
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import INPUTS_KIND, ChangesRef, Genesis, Increment, RetiredInput
from snapreplay.snapshots.plan import chain_began_at

T = TypeVar("T")


class Added(msgspec.Struct, frozen=True):
    """Where a new input begins.

    Attributes:
        position: the first offset to process.
        below: what its log holds directly below it.
        anchor: the last record before it, if it was processed.
        how: the rest of the sentence "input X is read …".
        start_offset: where its first record was, if it was an input before.
    """

    position: int
    below: PositionAnchor | None = None
    anchor: Anchor | None = None
    how: str = ""
    start_offset: int | None = None

    @classmethod
    def again(cls, before: RetiredInput) -> Added:
        """Resume where the input was retired: it is the same topic, so nothing of it counts twice."""
        return cls(
            before.position,
            before.position_anchor,
            before.anchor,
            f", where it was retired after batch {before.batch}",
            before.start_offset,
        )


class InputChange(msgspec.Struct, frozen=True):
    """Inputs that are added, and those that are retired with the rest of the sentence "input X is retired …".
    `existing`: retired ones whose topic still exists."""

    added: Mapping[str, Added] = msgspec.field(default_factory=dict)
    retired: Mapping[str, str] = msgspec.field(default_factory=dict)
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    existing: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.retired)

    @property
    def lines(self) -> list[str]:
        """The change in sentences without their full stops; many inputs that begin alike are in one."""
        names_by_change: dict[str, list[str]] = {}
        for name, each in sorted(self.added.items()):
            names_by_change.setdefault(f"read from offset {each.position} on{each.how}", []).append(name)
        for name, how in sorted(self.retired.items()):
            names_by_change.setdefault(f"retired {how}", []).append(name)
        return [line for what, names in names_by_change.items() for line in _sentences(names, what)]

    def decision(self, log: object, last: FoundIncrement, reason: str, by: str) -> dict[str, str]:
        """Return what the increment records; `log`: the increments topic and partition."""
        facts = f"{log} {last.offset} {sorted(self.added)} {sorted(self.retired)}"
        return {
            "finding": f"{INPUTS_KIND}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}",
            "problem": f"the inputs up to batch {last.increment.batch} were"
            f" {some(sorted(last.increment.positions)) or 'none'}",
            "decided": f"{'; '.join(self.lines)}; the state stays as it is, and no outputs were written",
            "reason": reason,
            "by": by,
        }

    def behind(self, last: FoundIncrement, owner_epoch: int, decision: Mapping[str, str], now_ms: int) -> Increment:
        """Return the increment that follows `last`: nothing was read, and the state is the same."""
        increment, added = last.increment, self.added
        places = {name: each.position for name, each in added.items()}
        starts = {n: each.position if each.start_offset is None else each.start_offset for n, each in added.items()}
        kept = increment.begun_input if increment.begun_input not in self.retired else None
        return msgspec.structs.replace(
            increment,
            owner_epoch=owner_epoch,
            batch=increment.batch + 1,
            previous_offset=last.offset,
            ranges=[],
            record_count=0,
            skipped=[],
            positions=self._with(increment.positions, places),
            anchors=self._with(increment.anchors, {n: each.anchor for n, each in added.items() if each.anchor}),
            position_anchors=self._with(
                increment.position_anchors, {n: each.below for n, each in added.items() if each.below}
            ),
            topic_ids=self._with(increment.topic_ids, self.topic_ids),
            genesis=Genesis(
                increment.genesis.cluster_id,
                increment.genesis.partition_count,
                self._with(increment.genesis.start_offsets, starts),
            ),
            # A log that leads to the state before without its inputs leads to this one without them, too.
            changes=None if needs_inputs(increment) else ChangesRef(0, 0, 0),
            outputs={},
            outputs_xxh64={},
            written_at_ms=now_ms,
            fallback_from=None,
            decision=dict(decision),
            last_decision_offset=decided_at(increment, last.offset),
            last_anew_offset=chain_began_at(increment, last.offset),
            cleared=[],
            fired_count=0,
            skipped_timers=[],
            begun_periods=0,
            begun_input=kept,
            retired_inputs=self._retired_inputs(increment),
        )

    def _retired_inputs(self, last: Increment) -> dict[str, RetiredInput]:
        ended = {
            name: RetiredInput(
                last.batch,
                last.positions[name],
                last.genesis.start_offsets[name],
                last.topic_ids.get(name, ""),
                last.anchors.get(name),
                last.position_anchors.get(name),
            )
            for name in self.retired
            if name in self.existing
        }
        return {name: each for name, each in last.retired_inputs.items() if name not in self.added} | ended

    def _with(self, before: Mapping[str, T], added: Mapping[str, T]) -> dict[str, T]:
        return {name: each for name, each in before.items() if name not in self.retired} | dict(added)


def _sentences(names: list[str], what: str) -> list[str]:
    if len(names) > SOME + 1:
        return [f"inputs {some(names)} are {what}"]
    return [f"input {name} is {what}" for name in names]
