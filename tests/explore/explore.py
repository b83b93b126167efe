"""Breadth first: every interleaving, each state once, the shortest history of what must never be."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from tests.explore.moves import moves
from tests.explore.replacing import TOLD, replace
from tests.explore.world import NAMES, Owner, World, problems

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
    """Return a key of everything that decides what can happen next; which batch an ownership tells of does not, nor
    does, where both have the same code, which of the owners is called A."""
    one, two = map(_told, world.owners)
    rest = _encoded(_REST(world))
    told = one + two + rest
    if _CODE(world.owners[0]) == _CODE(world.owners[1]):
        told = min(told, (two + one + rest).translate(_OTHERS))
    return hashlib.blake2b(told, digest_size=16).digest()


_SAME = {"owners", "rules", "batches", "copies", "broken"}
_REST = attrgetter(*(each.name for each in fields(World) if each.name not in _SAME))
"""All but the owners and what is the same in every world of a walk."""
_CODE = attrgetter("ownership.expected.schema_version", "ownership.expected.inputs")
_OTHERS = bytes.maketrans("".join(NAMES).encode(), "".join(reversed(NAMES)).encode())
"""Exchanges the names in what is encoded. No number there is as large as the code of a letter, so that nothing but the
same world with exchanged names comes out alike."""


def _told(owner: Owner) -> bytes:
    """Encode an owner, once: most moves leave one of them as it is."""
    made = vars(owner)
    if TOLD not in made:
        known = replace(owner, ownership=replace(owner.ownership, batch=None), doing=None)
        made[TOLD] = _encoded((known, type(owner.doing).__name__.lower()))
    told: bytes = made[TOLD]
    return told


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
            reached = key_of(after)
            known = reached in came
            problem = after.broken or ("" if known else next(problems(after), ""))
            if problem:
                return Explored(len(came), False, problem, (*_story(came, key), words))
            if known:
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
