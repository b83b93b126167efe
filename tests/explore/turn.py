"""An owner whose turn it is, and what follows when its ownership has ended: as the machine of ownership says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import next_steps, outcomes
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced
from snapreplay.snapshots.format.records import Increment
from tests.explore.world import Entry, Owner, World

FENCED = Fenced("refused")
IN_DOUBT = CommitInDoubt("no answer")

Move = tuple[str, World]


class Turn(NamedTuple):
    """`owner` is this one after the steps that it has done so far."""

    world: World
    number: int
    owner: Owner

    @property
    def is_fenced(self) -> bool:
        return self.owner.producer_epoch != self.world.epoch

    def now(self, **changes: Any) -> Turn:
        """The owner with these changes."""
        return self._replace(owner=replace(self.owner, **changes))

    def on(self, **changes: Any) -> Turn:
        """Return the turn in a world with these changes."""
        return self._replace(world=replace(self.world, **changes))

    def writes(self, *entries: Entry) -> Turn:
        return self.on(log=(*self.world.log, *entries))

    def faulty(self) -> Turn:
        return self.on(faults=self.world.faults - 1)

    def done(self, broken: str = "") -> World:
        owners = list(self.world.owners)
        owners[self.number] = self.owner
        broken = broken or self.world.broken
        return replace(self.world, owners=(owners[0], owners[1]), broken=broken)


def ended(
    turn: Turn,
    error: SnapreplayError,
    failed: Increment | None = None,
    owner_epoch: int | None = None,
) -> World:
    epoch = owner_epoch if owner_epoch is not None else turn.owner.ownership.owner_epoch
    outcome = outcomes.Ended(error, 0.0, epoch, 0, failed)
    return follow(turn.now(recovery=None, doing=None, view=None), outcome)


def follow(turn: Turn, outcome: outcomes.Outcome) -> World:
    ownership, following = machine.step(turn.owner.ownership, outcome)
    ownership = replace(
        ownership,
        pauses=type(ownership.pauses)(),
        takeovers=type(ownership.takeovers)(),
        failures=type(ownership.failures)(0),
    )
    turn = turn.now(ownership=ownership)
    match following:
        case next_steps.Own():
            return turn.done()
        case next_steps.AskForLoss():
            return follow(turn, outcomes.LossAnswered(None))
        case next_steps.Lose():
            return follow(turn, outcomes.Done())
        case next_steps.AskForOwner():
            return turn.now(asks=True).done()
        case next_steps.Pause():
            return follow(turn, outcomes.Done())
        case next_steps.StandBack():
            back = replace(ownership, stage=machine.Stage.OWNING)
            return turn.now(kept=None, remembers=-1, stands_back=True, ownership=back).done()
        case _ if turn.world.was_cut:
            return turn.now(has_stopped=True).done()
        case _:
            return turn.done(broken=f"it stops: {following}")
