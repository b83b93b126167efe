"""A command beside the owners: it fences, claims, looks and decides. It may be killed once it has fenced.

What it has seen before that counts for nothing, unless that rule is broken.
"""

from collections.abc import Iterator

import msgspec

from snapreplay.service.core.chain import Chain, standing_for
from snapreplay.service.core.input_change import Added, InputChange
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import INPUTS_KIND, PATCHED_KIND, Increment, Origin, Pointer
from tests.explore.replacing import replace
from tests.explore.world import MARKER, MORE, Command, Entry, Snapshot, State, World, claim_of

NAME = "C"


def command_moves(world: World) -> Iterator[tuple[str, World]]:
    command = world.command
    if command is None:
        return
    if command.epoch >= 0:
        yield f"{NAME} is killed", replace(world, command=None)
    if command.looked is None and not world.rules.looks_again:
        yield from _look(world, command)
    elif command.epoch < 0:
        yield from _fence(world, command)
    elif command.epoch != world.epoch:
        yield f"{NAME} is fenced", replace(world, command=_again(command))
    elif command.claim_offset < 0:
        yield from _claim(world, command)
    else:
        yield from _decide(world, command)


def begun_again(
    world: World, origin: Origin, epoch: int, last: FoundIncrement, state: State, finding: str
) -> tuple[Increment, Snapshot]:
    """Return the increment that begins a chain with this state after the last batch, and its snapshot."""
    standing, at = standing_for(last, state.digest, {}), len(world.snapshots)
    snapshot = Snapshot(standing.batch, state)
    pointer = Pointer(f"{finding}-{epoch}", at, at, standing.batch, epoch, state.digest)
    chain = Chain(origin, epoch, standing, epoch, pointers_max=1)
    increment = chain.pointing_to(pointer).next_increment(None, None, 0)
    return msgspec.structs.replace(increment, decision={"finding": f"{finding}-1"}), snapshot


def _look(world: World, command: Command) -> Iterator[tuple[str, World]]:
    last = world.found(0, len(world.log))
    assert last is not None
    yield f"{NAME} looks at batch {last.increment.batch}", replace(world, command=replace(command, looked=last))


def _fence(world: World, command: Command) -> Iterator[tuple[str, World]]:
    if not world.fences:
        return
    epoch = world.epoch + (1 if world.rules.command_fences else 0)
    yield f"{NAME} fences", replace(world, epoch=epoch, fences=world.fences - 1, command=replace(command, epoch=epoch))


def _claim(world: World, command: Command) -> Iterator[tuple[str, World]]:
    offset = len(world.log)
    log = (*world.log, Entry(claim=claim_of(NAME, command.claims)), MARKER)
    claimed = replace(world, log=log, command=replace(command, claims=command.claims + 1, claim_offset=offset))
    yield f"{NAME} claims at {offset}", claimed
    if world.faults:
        lost = replace(claimed, faults=world.faults - 1, command=_again(command, claims=command.claims + 1))
        yield f"{NAME} claims at {offset}, and gets no answer", lost


def _decide(world: World, command: Command) -> Iterator[tuple[str, World]]:
    """Decide with the last increment of now, if it has still what the command is about."""
    last = command.looked or world.found(0, len(world.log))
    assert last is not None
    if _is_done(command, last):
        yield f"{NAME} finds its work done", replace(world, command=None)
        return
    increment, snapshots, offset = *_decided(world, command, last), len(world.log)
    written = replace(world, log=(*world.log, Entry(increment=increment), MARKER), snapshots=snapshots)
    what = f"{NAME} decides about batch {last.increment.batch} at {offset}"
    yield what, replace(written, command=None)
    if world.faults:
        again, faults = _again(command), world.faults - 1
        yield f"{what}, and gets no answer", replace(written, faults=faults, command=again)
        yield f"{what}, which does not arrive", replace(world, faults=faults, command=again)


def _decided(world: World, command: Command, last: FoundIncrement) -> tuple[Increment, tuple[Snapshot | None, ...]]:
    if command.corrects:
        state = State.of(last.increment)
        state = state._replace(patches=state.patches + 1)
        origin, epoch = last.increment.origin, command.claim_offset
        increment, snapshot = begun_again(world, origin, epoch, last, state, PATCHED_KIND)
        return increment, (*world.snapshots, snapshot)
    change = InputChange({MORE: Added(0)})
    return change.behind(last, command.claim_offset, {"finding": f"{INPUTS_KIND}-1"}, 0), world.snapshots


def _is_done(command: Command, last: FoundIncrement) -> bool:
    if command.corrects:
        return State.of(last.increment).patches > 0
    return MORE in last.increment.positions


def _again(command: Command, claims: int | None = None) -> Command:
    """Begin again: what it does not know is looked up."""
    return Command(command.corrects, claims=command.claims if claims is None else claims)
