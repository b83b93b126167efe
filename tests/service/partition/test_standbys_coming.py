"""A process asks for the partitions that it is to own when their copies are warm."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.partition.standby import LOOK_SECONDS, NoRoom, Standbys, StandbyTask
from snapreplay.service.recovery.examine import Examiner
from tests.support.in_memory import virtual
from tests.support.stage import until

TOO_LARGE = 1


@pytest.fixture
def held(bench, monkeypatch):
    """`await held(examined)` holds copies of two partitions that are to be owned here; what the group was asked for,
    in order. `examined()` comes before partition 1 is loaded."""
    examine, made = Examiner.examine_beside_owner, list[Standbys]()

    async def hold(examined):
        async def examining(self, *given):
            if self._context.partition == TOO_LARGE:
                await examined()
            return await examine(self, *given)

        monkeypatch.setattr(Examiner, "examine_beside_owner", examining)
        bench.create_topics(2)
        await bench.prepare()
        context, asked = await bench.context("two"), list[Any]()
        made.append(Standbys(lambda number: replace(context, partition=number), StatusBoard(), lambda _: False))
        made[0].hold({0, 1}, frozenset({0, 1}), lambda: asked.append(set(made[0].warm)))
        await until(lambda: made[0].warm == {0}, "the first one")
        return asked, made[0]

    return hold


@virtual
async def test_a_copy_that_cannot_be_loaded_holds_up_no_other(held):
    """A process that was added because memory is short would get nothing as long as one state is too large for it."""

    async def no_room():
        raise NoRoom("the copy takes about 2,000,000,000 bytes of memory, and 1,000,000,000 are free")

    asked, standbys = await held(no_room)
    await until(lambda: asked, "a new assignment is asked for")
    assert asked == [{0}]
    await standbys.end()


@virtual
async def test_a_copy_that_is_still_loaded_is_waited_for(held):
    """Else each of them would cost a rebalance."""
    goes_on = asyncio.Event()
    asked, standbys = await held(goes_on.wait)
    await asyncio.sleep(30)  # of virtual time
    assert not asked
    goes_on.set()
    await until(lambda: asked, "a new assignment is asked for")
    assert asked == [{0, 1}]
    await standbys.end()


@virtual
async def test_a_look_of_one_copy_does_not_go_through_all_others(bench, monkeypatch):
    """Each of some hundred copies looks twice a second."""
    bench.create_topics(20)
    await bench.prepare()
    context, asked, is_warm = await bench.context("two"), list[StandbyTask](), vars(StandbyTask)["is_warm"].fget

    def counted(standby):
        asked.append(standby)
        return is_warm(standby)

    monkeypatch.setattr(StandbyTask, "is_warm", property(counted))
    standbys = Standbys(lambda number: replace(context, partition=number), StatusBoard(), lambda _: False)
    standbys.hold(set(range(20)), frozenset({0}), lambda: None)
    await asyncio.sleep(60)  # of virtual time
    assert standbys.warm == set(range(20))
    looks = 20 * 60 / LOOK_SECONDS
    assert len(asked) < looks / 10
    await standbys.end()
