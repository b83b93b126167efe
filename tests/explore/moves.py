"""What can happen next in a world: each owner does its next step, with every answer that Kafka may give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from snapreplay.service.core import ownership as machine
from tests.explore.between import Move, Rules, ask, with_owner
from tests.explore.processing import process
from tests.explore.recovering import begin, perform
from tests.explore.world import NAMES, Owner, World


def moves(world: World, rules: Rules) -> Iterator[Move]:
    """Every next world, and in words what happened."""
    for number, owner in enumerate(world.owners):
        name = NAMES[number]
        for what, after in _moves_of(world, number, owner, rules):
            yield f"{name} {what}", after
        started = owner.recovery is not None or owner.is_live
        if world.crashes and started:
            fresh = Owner(
                replace(owner.ownership, stage=machine.Stage.OWNING), None, claims=owner.claims
            )
            yield (
                f"{name} is killed and starts again",
                with_owner(replace(world, crashes=world.crashes - 1), number, fresh),
            )


def _moves_of(world: World, number: int, owner: Owner, rules: Rules) -> Iterator[Move]:
    if owner.is_live:
        yield from process(world, number, owner, rules)
    elif owner.asks:
        yield from ask(world, number, owner)
    elif owner.stands_back:
        yield "is given the partition", begin(world, number, replace(owner, stands_back=False))
    elif owner.doing is None:
        yield "begins to recover", begin(world, number, owner)
    else:
        yield from perform(world, number, owner, owner.doing, rules)
