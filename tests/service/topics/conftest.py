"""The topics of an app that ran, in memory: batches 1 and 2, a snapshot, 4 and 5, a snapshot, 7 and 8 (3 and 6 point).
What a real broker adds is in tests/log_tail, what becomes of any damaged byte in tests/damage."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.damage import memory
from tests.damage.edits import Edit
from tests.damage.memory import World


@pytest.fixture(scope="module")
async def lived() -> Callable[..., Awaitable[World]]:
    """Made once for each kind of log."""
    made: dict[bool, World] = {}

    async def world(changes: bool = True) -> World:
        if changes not in made:
            made[changes] = await memory.world(changes=changes)
        return made[changes].copy()

    return world


@pytest.fixture
async def past(lived: Callable[..., Awaitable[World]]) -> Callable[..., Awaitable[World]]:
    """`await past(increments=[edit], snapshots=[edit])` is a copy with these edits."""

    async def make(changes: bool = True, **edited: list[Edit]) -> World:
        world = await lived(changes)
        for part, edits in edited.items():
            slots = world.cluster.slots(f"memory-{part}")
            for edit in edits:
                edit(slots)
            world.cluster.rewrite(f"memory-{part}", slots)
        return world

    return make


@pytest.fixture
def recovered() -> Callable[[World], Awaitable[Any]]:
    """`await recovered(world)` is the outcome; Any, as the test knows how it ends."""
    return memory.recovered


@pytest.fixture
def cut() -> Callable[[World, str, RecordKind, int], int]:
    """`cut(world, "increments", kind, number)` ends the log before that record; where that is."""

    def end(world: World, part: str, kind: RecordKind, number: int) -> int:
        records = world.cluster.logs[f"memory-{part}"].records
        of_kind = [r.offset for r in records if r is not None and kind_of(r.value or b"") is kind]
        del records[of_kind[number] :]
        return of_kind[number]

    return end
