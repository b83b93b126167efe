"""The moves that are possible in a world: each owner does its next step, with every answer that Kafka may give."""

from collections.abc import Iterator

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.custody import IncrementsReplaced
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import Ending, RetainedState, WarmCopy
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import retention_floors
from tests.explore.deciding import command_moves
from tests.explore.recovering import begin, perform
from tests.explore.replacing import replace
from tests.explore.world import (
    FENCED,
    IN_DOUBT,
    KEPT,
    MARKER,
    NAMES,
    Entry,
    Move,
    Owner,
    Snapshot,
    State,
    Turn,
    World,
    ended,
    follow,
)


def moves(world: World) -> Iterator[Move]:
    for number, owner in enumerate(world.owners):
        name, turn = NAMES[number], Turn(world, number, owner)
        for what, after in _moves_of(turn):
            yield f"{name} {what}", after
        if world.crashes and (owner.recovery is not None or owner.chain is not None):
            restarted = replace(owner.ownership, stage=machine.Stage.OWNING)
            killed = turn._replace(owner=Owner(restarted, None, claims=owner.claims))
            yield f"{name} is killed and starts again", killed.on(crashes=world.crashes - 1).done()

    yield from command_moves(world)
    yield from _losses(world)


def _losses(world: World) -> Iterator[Move]:
    """Another leader has the log only up to some transaction; the genesis is everywhere."""
    for end in range(4, len(world.log), 2) if world.losses else ():
        start = min(world.log_start, end)
        left = replace(world, log=world.log[:end], log_start=start, losses=world.losses - 1)
        yield f"the brokers lose the log from {end} on", replace(left, was_cut=True)


def _moves_of(turn: Turn) -> Iterator[Move]:
    owner = turn.owner
    if owner.has_stopped:
        last = turn.world.found(0, len(turn.world.log))
        if owner.waits and last is not None and last.increment.positions.keys() == owner.ownership.expected.inputs:
            yield "is retried", begin(turn.now(has_stopped=False, waits=False))
        return
    if owner.chain is not None:
        yield from _process(turn, owner.chain)
    elif owner.asks:
        yield from _ask(turn)
    elif owner.stands_back:
        yield "is given the partition", begin(turn.now(stands_back=False))
        yield from _copy(turn)
    elif owner.doing is None:
        yield "begins to recover", begin(turn)
        yield from _copy(turn)
    else:
        yield from perform(turn, owner.doing)


def _copy(turn: Turn) -> Iterator[Move]:
    """Follow the log as a standby, which may have lost what was followed."""
    copy, last = turn.owner.copy, turn.world.found(0, len(turn.world.log))
    if not turn.world.copies or turn.owner.kept is not None or last is None:
        return
    if copy is None or last.offset > copy.last.offset:
        state = State.of(last.increment)
        yield f"copies batch {last.increment.batch}", turn.now(copy=WarmCopy(last), state=state).done()


def _ask(turn: Turn) -> Iterator[Move]:
    """Say whether somebody has claimed since; a broker that lags behind does not know."""
    newer = turn.world.newer_claim(turn.owner.ownership.owner_epoch)
    idle, asks = turn.now(asks=False), "who has claimed since:"
    words = "no owner" if newer is None else newer.instance_id
    yield f"asks the log {asks} {words}", follow(idle, machine.OwnerAnswered(newer))
    if newer is not None and turn.world.faults:
        no_owner = machine.OwnerAnswered(None)
        yield f"asks a stale leader {asks} no owner", follow(idle.faulty(), no_owner)


# ---------------------------------------------------------------------- a LIVE owner


def _process(turn: Turn, chain: Chain) -> Iterator[Move]:
    world = turn.world
    positions = chain.last.positions
    empty = chain.next_increment(None, None, 0)
    if positions["in"] < world.batches:
        batch = msgspec.structs.replace(empty, positions=positions | {"in": positions["in"] + 1}, record_count=1)
        yield from _commit(turn, chain, batch)
    elif chain.new_pointer is not None:
        yield from _commit(turn, chain, empty)
    if world.snapshots_left and chain.new_pointer is None and chain.batch:
        yield from _snapshot(turn, chain)
    yield from _trim(world, chain)


def _commit(turn: Turn, chain: Chain, increment: Increment) -> Iterator[Move]:
    what = f"commits batch {increment.batch}"
    if turn.is_fenced:
        yield f"{what}: fenced", _doubtful(turn, chain, increment, FENCED)
        return
    offset = len(turn.world.log)
    written = turn.writes(Entry(increment=increment), MARKER)
    after = written.now(chain=chain.committed(increment, offset))
    above = max(chain.last_offset, chain.owner_epoch)
    if offset <= above and turn.world.rules.compares_offsets:
        yield f"{what} at {offset}, below {above}", _replaced(after, chain.owner_epoch)
    else:
        yield f"{what} at {offset}", after.done()
    for how, after, error in (
        (f" at {offset}, and gets no answer", written, IN_DOUBT),
        (", which does not arrive", turn, IN_DOUBT),
        (": a stale coordinator refuses it", turn, FENCED),
    ):
        if turn.world.faults:
            yield what + how, _doubtful(after.faulty(), chain, increment, error)


def _replaced(turn: Turn, owner_epoch: int) -> World:
    """Commit into a log that has lost what was before."""
    chain = turn.owner.chain
    assert chain is not None
    lineage = Lineage(1, turn.owner.producer_epoch)
    kept = RetainedState(chain.last, chain.last_offset, lineage=lineage, replaced=True)
    turn = turn.now(kept=kept, chain=None, remembers=chain.batch)
    return ended(turn, IncrementsReplaced("the log was cut"), None, owner_epoch)


def _doubtful(turn: Turn, chain: Chain, increment: Increment, error: SnapreplayError) -> World:
    kept = RetainedState(
        chain.last,
        chain.last_offset,
        increment,
        ending=Ending(asked=True),
        lineage=Lineage(1, turn.owner.producer_epoch),
    )
    turn = turn.now(kept=kept, chain=None, remembers=chain.batch)
    return ended(turn, error, increment, chain.owner_epoch)


def _snapshot(turn: Turn, chain: Chain) -> Iterator[Move]:
    world, batch = turn.world, chain.batch
    at = len(world.snapshots)
    pointer = Pointer(f"s{batch}", at, at, batch, chain.last_offset, chain.last.digest)
    pointing = turn.on(snapshots_left=world.snapshots_left - 1).now(chain=chain.pointing_to(pointer))
    written = pointing.on(snapshots=(*world.snapshots, Snapshot(batch, turn.owner.state)))
    what = f"writes a snapshot of batch {batch}"
    yield what, written.done()
    if world.faults:
        unanswered = written._replace(owner=turn.owner)
        yield f"{what}, and gets no answer", unanswered.faulty().done()
        lost = pointing if not world.rules.waits_for_pointer else pointing._replace(owner=turn.owner)
        yield f"{what}, which does not arrive", lost.faulty().done()


def _trim(world: World, chain: Chain) -> Iterator[Move]:
    floors = retention_floors(chain.last, chain.last_offset, KEPT)
    if floors is None:
        return
    too_far = 2 if world.rules.trims_too_far else 0
    log_start = max(world.log_start, floors.increments_offset + too_far)
    snapshots_start = max(world.snapshots_start, floors.snapshots_offset + too_far // 2)
    trimmed = replace(world, log_start=log_start, snapshots_start=snapshots_start)
    if trimmed != world:
        yield f"trims up to {log_start}", trimmed
