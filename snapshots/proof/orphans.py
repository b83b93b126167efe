"""Increments whose predecessors are gone: their owner did not know yet that the topic was re-created, or cut.

It then began the chain anew after them, with everything that they say. Pure.
"""

from __future__ import annotations

from typing import NamedTuple


class Link(NamedTuple):
    """The facts of an increment that must be known to tell.

    Attributes:
        log_id: of the increments topic as its owner knew it; "" where the cluster has none.
    """

    offset: int
    previous_offset: int = 0
    owner_epoch: int = 0
    log_id: str = ""
    begins_anew: bool = False
    begun_by_owner: bool = False


class _Rule(NamedTuple):
    """Orphans are those in [start_offset, end_offset) that lie behind a cut, or in front of the first claim with the id
    of another topic. Without a cut `cut_offset` is `end_offset`."""

    start_offset: int
    end_offset: int
    cut_offset: int
    claim_offset: int
    log_id: str


class Orphans:
    """Give it each link of a partition in order. It keeps a few numbers for each beginning of the chain, however many
    increments follow."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._claim_offset: int | None = None
        self._start_offset: int | None = None
        self._cut_offset: int | None = None
        self._first_with: dict[str, int] = {}
        """Id of the topic → the first increment that names it, of those in front of the first claim."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def claim(self, offset: int) -> None:
        """Note a claim."""
        if self._claim_offset is None:
            self._claim_offset = offset

    def add(self, step: Link) -> None:
        """Judge the next increment."""
        if step.begun_by_owner:
            self._judge(step)
        if step.begins_anew:
            self._begin()
        if self._start_offset is None:
            self._start_offset = step.offset
        if self._cut_offset is None and step.previous_offset >= step.offset:
            self._cut_offset = step.offset
        if self._claim_offset is None:
            self._first_with.setdefault(step.log_id, step.offset)

    def has(self, offset: int, log_id: str) -> bool:
        """Say whether the increment at this offset is one."""
        for rule in self._rules:
            if rule.start_offset <= offset < rule.end_offset:
                is_foreign = offset < rule.claim_offset and log_id != rule.log_id
                return is_foreign or offset >= rule.cut_offset
        return False

    def _begin(self) -> None:
        """Begin the chain anew."""
        self._start_offset = self._cut_offset = None
        self._first_with = {}

    def _judge(self, end: Link) -> None:
        """Judge what lies before `end`: the owner has begun the chain anew here."""
        end_offset = end.owner_epoch
        foreign = [first for log_id, first in self._first_with.items() if log_id != end.log_id]
        cut = end_offset if self._cut_offset is None else self._cut_offset
        if self._start_offset is None or min([cut, *foreign]) >= end_offset:
            return
        claim = end_offset if self._claim_offset is None else self._claim_offset
        self._rules.append(_Rule(self._start_offset, end_offset, cut, claim, end.log_id))
