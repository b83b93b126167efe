"""Breadth first: every interleaving, each state once, the shortest history of what must never be."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tests.explore.moves import moves
from tests.explore.replacing import replace
from tests.explore.world import World, problems

Key = bytes
_encoded = msgspec.msgpack.Encoder(enc_hook=repr).encode


@dataclass(frozen=True)
class Explored:
    """`states` that were seen; `is_whole`: there are no others. `story`: what led to `problem`, step by step."""

    states: int
    is_whole: bool
    problem: str = ""
    story: tuple[str, ...] = ()


def key_of(world: World) -> Key:
    """Return a key of everything that decides what can happen next; which batch an ownership tells of does not."""
    one, two = (replace(each, ownership=replace(each.ownership, batch=None), doing=None) for each in world.owners)
    doing = [type(each.doing).__name__ for each in world.owners]
    return hashlib.blake2b(_encoded((replace(world, owners=(one, two)), doing)), digest_size=16).digest()


class Walk(NamedTuple):
    """The worlds to walk: what may happen, what must never be, and what tells one from another."""

    moves: Callable[[Any], Iterable[tuple[str, Any]]]
    problems: Callable[[Any], Iterator[str]]
    key_of: Callable[[Any], Key]


OWNERS = Walk(moves, problems, key_of)
"""Two owners of one partition."""


def explore(beginning: Any, states_max: int, walk: Walk = OWNERS) -> Explored:
    moves, problems, key_of = walk
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
