"""Between two ownerships: what the machine of ownership says, performed in the world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced
from snapreplay.snapshots.format.records import Increment
from tests.explore.world import Owner, World

FENCED = Fenced("refused")
IN_DOUBT = CommitInDoubt("no answer")

Move = tuple[str, World]


@dataclass(frozen=True)
class Rules:
    """What the protocol does; each can be broken, to see whether it is found."""

    fences: bool = True
    claims: bool = True
    waits_for_claim: bool = True
    waits_for_pointer: bool = True
    trims_too_far: bool = False


def with_owner(world: World, number: int, owner: Owner) -> World:
    owners = list(world.owners)
    owners[number] = owner
    return replace(world, owners=(owners[0], owners[1]))


def after_fault(world: World) -> World:
    return replace(world, faults=world.faults - 1)


def ended(
    world: World,
    number: int,
    owner: Owner,
    error: SnapreplayError,
    failed: Increment | None = None,
    owner_epoch: int | None = None,
) -> World:
    epoch = owner_epoch if owner_epoch is not None else owner.ownership.owner_epoch
    ended = machine.Ended(error, 0.0, epoch, 0, failed)
    idle = replace(owner, recovery=None, doing=None, view=None)
    return _follow(world, number, idle, ended)


def _follow(world: World, number: int, owner: Owner, outcome: machine.Outcome) -> World:
    ownership, following = machine.step(owner.ownership, outcome)
    ownership = replace(
        ownership,
        pauses=type(ownership.pauses)(),
        takeovers=type(ownership.takeovers)(),
        failures=type(ownership.failures)(0),
    )
    owner = replace(owner, ownership=ownership)
    match following:
        case machine.Own():
            return with_owner(world, number, owner)
        case machine.AskForLoss():
            return _follow(world, number, owner, machine.LossAnswered(None))
        case machine.AskForOwner():
            return with_owner(world, number, replace(owner, asks=True))
        case machine.Pause():
            return _follow(world, number, owner, machine.Done())
        case machine.StandBack():
            forgotten = replace(owner, kept=None, stands_back=True)
            back = replace(ownership, stage=machine.Stage.OWNING)
            return with_owner(world, number, replace(forgotten, ownership=back))
        case _:
            return replace(with_owner(world, number, owner), broken=f"it stops: {following}")


def ask(world: World, number: int, owner: Owner) -> Iterator[Move]:
    """Whether somebody has claimed since; a broker that lags behind does not know."""
    epoch = owner.ownership.owner_epoch
    newer = world.newer_claim(epoch, len(world.log)) if epoch is not None else None
    idle = replace(owner, asks=False)
    words = "nobody" if newer is None else newer.instance_id
    yield (
        f"asks the log who has claimed since: {words}",
        _follow(world, number, idle, machine.OwnerAnswered(newer)),
    )
    if newer is not None and world.faults:
        nobody = machine.OwnerAnswered(None)
        yield (
            "asks a stale leader who has claimed since: nobody",
            _follow(after_fault(world), number, idle, nobody),
        )
