"""Increments whose predecessors are gone: their owner did not know yet that the topic was re-created, or cut.

It then began the chain anew after them, with everything that they say. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Step(NamedTuple):
    """What has to be known of an increment, or of a claim, to tell.

    Attributes:
        log_id: of the increments topic as its owner knew it; "" where the cluster has none.
    """

    offset: int
    is_claim: bool
    previous_offset: int = 0
    owner_epoch: int = 0
    log_id: str = ""
    begins_anew: bool = False
    begun_by_owner: bool = False


class _Life(NamedTuple):
    """The steps from one beginning of the chain to the next."""

    steps: list[tuple[Step, int]]  # with the number of claims so far


def orphans(steps: Iterable[Step]) -> Collection[int]:
    """Offsets of the orphaned increments. `steps`: of a whole partition, in order."""
    found: set[int] = set()
    life, claims = _Life([]), 0
    for step in steps:
        if step.begun_by_owner:
            found.update(_of(life, step))
        if step.begins_anew:
            life = _Life([])
        claims += step.is_claim
        if not step.is_claim:
            life.steps.append((step, claims))
    return found


def _of(life: _Life, end: Step) -> Iterable[int]:
    is_cut = False
    for step, claims in life.steps:
        if step.offset >= end.owner_epoch:
            return
        is_cut = is_cut or step.previous_offset >= step.offset
        if is_cut or (claims == 0 and step.log_id != end.log_id):
            yield step.offset
