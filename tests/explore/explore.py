"""Breadth first: every interleaving, each state once, the shortest history of what must never be."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.retained import RetainedState
from snapreplay.snapshots.format.records import Increment
from tests.explore.moves import moves
from tests.explore.world import Owner, World, problems

Key = bytes


@dataclass(frozen=True)
class Explored:
    """`states` that were seen; `is_whole`: there are no others. `story`: what led to `problem`, step by step."""

    states: int
    is_whole: bool
    problem: str = ""
    story: tuple[str, ...] = ()


def key_of(world: World) -> Key:
    """Return a key of everything that decides what can happen next."""
    log = [
        entry.claim.claim_id if entry.claim else _increment(entry.increment) for entry in world.log
    ]
    rest = (world.epoch, world.log_start, world.snapshots, world.snapshots_start)
    left = (world.snapshots_left, world.faults, world.crashes, world.fences)
    losses = (world.losses, world.was_cut)
    told = (log, rest, left, losses, [_owner(owner) for owner in world.owners])
    return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()


def _increment(increment: Increment | None) -> object:
    if increment is None:
        return None
    pointers = [pointer.snapshot_id for pointer in increment.pointers]
    place = (increment.batch, increment.owner_epoch, increment.previous_offset)
    return place, increment.positions["in"], pointers


def _owner(owner: Owner) -> object:
    ownership, chain = owner.ownership, owner.chain
    between = (ownership.stage.name, ownership.owner_epoch, type(ownership.cause).__name__)
    live = (chain.last_offset, chain.owner_epoch, chain.new_pointer is not None) if chain else None
    flags = (owner.producer_epoch, owner.claims, owner.view, owner.stands_back, owner.asks)
    kept = (owner.remembers, owner.has_stopped, _kept(owner.kept))
    doing = type(owner.doing).__name__
    return between, live, flags, doing, _recovery(owner.recovery), kept


def _recovery(recovery: Recovery | None) -> object:
    if recovery is None:
        return None
    found = recovery.last.offset if recovery.last else None
    where = (recovery.phase, recovery.claim_id, recovery.owner_epoch, recovery.log_start_offset)
    start = getattr(getattr(recovery.start, "pointer", None), "snapshot_id", recovery.start is None)
    read = (recovery.window, recovery.starts, start, recovery.base, recovery.unusable)
    return where, found, read, recovery.unavailable_mode is not None


def _kept(kept: RetainedState | None) -> object:
    if kept is None:
        return None
    state = (kept.last_offset, kept.last.batch, _increment(kept.doubtful), kept.replaced)
    return state, kept.lineage, kept.unbroken


def explore(beginning: World, states_max: int) -> Explored:
    """Wait until a problem, `states_max`, or the end."""
    start = key_of(beginning)
    came: dict[Key, tuple[Key, str] | None] = {start: None}
    waiting = deque([(start, beginning)])
    while waiting:
        key, world = waiting.popleft()
        for words, after in moves(world):
            problem = after.broken or next(problems(after), "")
            if problem:
                return Explored(len(came), False, problem, (*_story(came, key), words))
            reached = key_of(after)
            if reached in came:
                continue
            if len(came) >= states_max:
                return Explored(len(came), False)
            came[reached] = key, words
            waiting.append((reached, after))
    return Explored(len(came), True)


def _story(came: dict[Key, tuple[Key, str] | None], key: Key) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came[key]) is not None:
        key, words = before
        steps.append(words)
    return tuple(reversed(steps))
