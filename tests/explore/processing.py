"""A LIVE owner in the world: batches, snapshots, trims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.retained import Ending, RetainedState
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.retention import retention_floors
from tests.explore.between import FENCED, IN_DOUBT, Move, Rules, after_fault, ended, with_owner
from tests.explore.world import KEPT, MARKER, Entry, Owner, World


def process(world: World, number: int, owner: Owner, rules: Rules) -> Iterator[Move]:
    chain = owner.chain
    if chain is None:
        raise AssertionError("it is not LIVE")
    position = chain.last.positions["in"]
    if position < world.batches:
        empty = chain.next_increment(None, None, 0)
        increment = msgspec.structs.replace(empty, positions={"in": position + 1}, record_count=1)
        yield from _commit(world, number, owner, increment)
    elif chain.new_pointer is not None:
        yield from _commit(world, number, owner, chain.next_increment(None, None, 0))
    if world.snapshots_left and chain.new_pointer is None and chain.batch:
        yield from _snapshot(world, number, owner, chain, rules)
    yield from _trim(world, chain, rules)


def _commit(world: World, number: int, owner: Owner, increment: Increment) -> Iterator[Move]:
    what = f"commits batch {increment.batch}"
    if owner.producer_epoch != world.epoch:
        yield f"{what}: fenced", _doubtful(world, number, owner, increment, FENCED)
        return
    offset = len(world.log)
    written = replace(world, log=(*world.log, Entry(increment=increment), MARKER))
    chain = owner.chain
    if chain is None:
        raise AssertionError("it is not LIVE")
    done = replace(owner, chain=chain.committed(increment, offset))
    yield f"{what} at {offset}", with_owner(written, number, done)
    if world.faults:
        yield (
            f"{what} at {offset}, and gets no answer",
            _doubtful(after_fault(written), number, owner, increment, IN_DOUBT),
        )
        yield (
            f"{what}, which does not arrive",
            _doubtful(after_fault(world), number, owner, increment, IN_DOUBT),
        )
        yield (
            f"{what}: a stale coordinator refuses it",
            _doubtful(after_fault(world), number, owner, increment, FENCED),
        )


def _doubtful(
    world: World, number: int, owner: Owner, increment: Increment, error: SnapreplayError
) -> World:
    chain = owner.chain
    if chain is None:
        raise AssertionError("it is not LIVE")
    kept = RetainedState(
        chain.last,
        chain.last_offset,
        increment,
        ending=Ending(asked=True),
        lineage=Lineage(1, owner.producer_epoch),
    )
    holder = replace(owner, kept=kept, chain=None)
    return ended(world, number, holder, error, increment, chain.owner_epoch)


def _snapshot(
    world: World, number: int, owner: Owner, chain: Chain, rules: Rules
) -> Iterator[Move]:
    offset = len(world.snapshots)
    pointer = Pointer(
        f"s{chain.batch}", offset, offset, chain.batch, chain.last_offset, chain.last.digest
    )
    pointing = replace(owner, chain=chain.pointing_to(pointer))
    left = replace(world, snapshots_left=world.snapshots_left - 1)
    written = replace(left, snapshots=(*world.snapshots, chain.batch))
    what = f"writes a snapshot of batch {chain.batch}"
    yield what, with_owner(written, number, pointing)
    if world.faults:
        yield f"{what}, and gets no answer", after_fault(written)
        unwritten = pointing if not rules.waits_for_pointer else owner
        yield f"{what}, which does not arrive", with_owner(after_fault(left), number, unwritten)


def _trim(world: World, chain: Chain, rules: Rules) -> Iterator[Move]:
    floors = retention_floors(chain.last, chain.last_offset, KEPT)
    if floors is None:
        return
    too_far = 2 if rules.trims_too_far else 0
    log_start = max(world.log_start, floors.increments_offset + too_far)
    snapshots_start = max(world.snapshots_start, floors.snapshots_offset + too_far // 2)
    trimmed = replace(world, log_start=log_start, snapshots_start=snapshots_start)
    if trimmed != world:
        yield f"trims up to {log_start}", trimmed
