"""The increments topic loses its end while its owner commits nothing: the state in its memory is the only copy."""

import asyncio
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import standstill
from snapreplay.service.topics import increments, reading
from snapreplay.snapshots.format.records import Paused
from tests.simulation.reader import SimReader
from tests.support.in_memory import virtual
from tests.support.owner import ends
from tests.support.stage import until

NOTICED_SECONDS = (standstill.READ_EVERY_LOOKS + 1) * standstill.LOOK_SECONDS + reading.PATIENCE_SECONDS

LOSSES = ("its last batch", "its last batch, then it has grown", "then to the same end", "its claim", "a marker")


@pytest.fixture
def watches():
    """The tasks that show the topics to owners, as a supervisor does."""
    made: list[Any] = []
    yield made
    assert made


async def idle(bench, watches, loss=LOSSES[0]):
    """Return an owner of ten records whose last commit is long over."""
    await bench.prepare()
    one = await bench.owner()
    watches.append(asyncio.create_task(one.watch_end()))
    if loss != "its claim":
        await bench.feed(10)
        await one.position(10)
    await one.phase("live")
    await asyncio.sleep(2 * standstill.LOOK_SECONDS)
    return one


def lose(bench, one, loss):
    log = bench.log(bench.increments)
    first, end = bench.last_batch()[0], log.end
    match loss:
        case "its claim":
            log.cut(one.status.owner_epoch)
        case "a marker":
            log.cut(end - 1)
        case _:
            log.cut(first)
    grown = {"its last batch, then it has grown": end + 7, "then to the same end": end}.get(loss, 0)
    while log.end < grown:
        log.append(None, b"foreign", (), 1, None)


@pytest.mark.parametrize("is_paused", [False, True], ids=["idle", "paused"])
@pytest.mark.parametrize("loss", LOSSES)
@virtual
async def test_an_owner_that_commits_nothing_writes_what_its_log_has_lost(bench, watches, loss, is_paused):
    """It is not ready meanwhile. Whoever comes next finds all of it, whatever becomes of this process."""
    one = await idle(bench, watches, loss)
    if is_paused:
        told: list[Any] = []
        assert one.runner.request_pause(Paused(1, "a test"), ends(told))
        await until(lambda: told, "the pause")
        await asyncio.sleep(2 * standstill.LOOK_SECONDS)
    seen: list[Any] = []
    one.board.subscribe(lambda status: seen.append((status.phase.value, bool(status.ownership_doubt))))
    epoch = one.status.owner_epoch
    lose(bench, one, loss)
    await until(lambda: ("fencing", False) in seen, "noticed", NOTICED_SECONDS)
    await one.phase("live")
    assert one.status.owner_epoch != epoch or loss == "its claim"
    assert ("live", True) in seen, "not ready while brokers are asked"
    assert one.status.ownership_doubt == ""
    two = await bench.owner("two")
    await two.phase("live")
    if is_paused:
        assert two.runner.request_pause(None, ends([]))
    await bench.feed(10)
    await bench.assert_exactly_once(two)


@virtual
async def test_a_leader_that_lags_behind_for_a_while_has_lost_nothing(bench, watches, monkeypatch):
    """It is asked again, and the owner goes on by the same claim."""
    one = await idle(bench, watches)
    bounds, ends, loop, doubts = SimReader.bounds, SimReader.end_offsets, asyncio.get_running_loop(), set()
    one.board.subscribe(lambda status: doubts.add(status.ownership_doubt))
    until_s = loop.time() + standstill.LOOK_SECONDS + reading.PATIENCE_SECONDS / 2

    async def lagging(self, partition):
        found = await bounds(self, partition)
        is_stale = partition.topic == bench.increments and loop.time() < until_s
        return found._replace(end_offset=found.end_offset - 3) if is_stale else found

    async def ending(self, partitions):
        is_stale = loop.time() < until_s
        return {each: end - 3 if is_stale else end for each, end in (await ends(self, partitions)).items()}

    monkeypatch.setattr(SimReader, "bounds", lagging)
    monkeypatch.setattr(SimReader, "end_offsets", ending)
    epoch = one.status.owner_epoch
    await asyncio.sleep(NOTICED_SECONDS)
    assert (one.status.phase, one.status.owner_epoch, one.status.ownership_doubt) == ("live", epoch, "")
    assert any("we have written up to" in each for each in doubts)


@virtual
async def test_a_doubt_ends_although_brokers_did_not_answer_when_asked_again(bench, watches, monkeypatch):
    """Also where records come meanwhile, and nobody looks any more because of them."""
    one = await idle(bench, watches)
    said: list[str] = []

    async def answering(*asked):
        said.append(
            "stale" if not said else "silent" if one.status.ownership_doubt and "silent" not in said else "true"
        )
        if said[-1] == "silent":
            raise Unreachable("nobody answers")
        return "it ends before" if said[-1] == "stale" else await increments.why_gone(*asked)

    monkeypatch.setattr(standstill, "why_gone", answering)
    await until(lambda: said, "a look", NOTICED_SECONDS)
    await asyncio.sleep(3)
    for count in range(11, 40):
        await bench.feed(1)
        await one.position(count)
        await asyncio.sleep(1)
    assert (one.status.phase, one.status.ownership_doubt) == ("live", "")
