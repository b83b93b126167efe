"""An owner that commits nothing looks each second where its log ends: how soon it hears of a newer owner, what does not
alarm it, and the age of what it shows until then."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.topics import increments
from tests.simulation.reader import SimReader
from tests.support.in_memory import virtual
from tests.support.stage import until

NOTICED_SECONDS = 2.0


def now():
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def quiet(bench, seconds=5.0):
    """An owner of ten records whose last commit is `seconds` ago. It never stops looking."""
    await bench.prepare()
    one = await bench.owner()
    watch = asyncio.create_task(one.watch_end())
    await bench.feed(10)
    await one.position(10)
    await asyncio.sleep(seconds)
    yield one
    assert not watch.done()
    if not one.task.done():
        await one.end()
    await watch


@pytest.fixture
def questions(monkeypatch):
    """Those about newer owners, as they come."""
    asked = []
    ask = increments._newer_owner

    async def counted(*given):
        asked.append(now())
        return await ask(*given)

    monkeypatch.setattr(increments, "_newer_owner", counted)
    return asked


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.9])
@virtual
async def test_a_quiet_owner_leaves_within_two_seconds_of_a_newer_claim(bench, offset):
    """And shows its age until then."""
    async with quiet(bench, 5.0 + offset) as one:
        claimed = len(one.phases)
        two = await bench.owner("two")
        await until(lambda: two.status is not None and two.status.owner_epoch is not None, "the claim")
        at = now()
        ages = []
        while one.status.phase == "live":
            age_seconds = one.runner.readable.age_seconds
            ages.append((now() - at, age_seconds))
            await asyncio.sleep(0.05)
        assert now() - at <= NOTICED_SECONDS
        assert "fenced" in one.phases[claimed:]
        assert all(age >= since for since, age in ages), "the log has shown no ownership of ours since the claim"
        await two.end()


@virtual
async def test_what_a_quiet_owner_shows_is_as_old_as_the_last_look(bench, monkeypatch):
    """Nobody answers for a minute: then the age is a minute."""
    async with quiet(bench) as one:
        assert one.runner.readable.age_seconds <= 1.0

        async def nobody(*_):
            return {}

        with monkeypatch.context() as patch:
            patch.setattr(SimReader, "end_offsets", nobody)
            patch.setattr(SimReader, "bounds", unanswered)
            await asyncio.sleep(60.0)
            assert one.runner.readable.age_seconds >= 60.0
        await until(lambda: one.runner.readable.age_seconds <= 1.0, "answers again")
        await bench.feed(1)
        await one.position(11)
        assert one.runner.readable.age_seconds <= 1.0


async def unanswered(*_):
    raise Unreachable("nobody answers")


@pytest.mark.parametrize("what", ["nothing", "own commits", "aborted", "foreign", "a stale leader"])
@virtual
async def test_what_is_no_newer_owner_alarms_nobody(bench, monkeypatch, questions, what):
    """It stays LIVE without a doubt, and asks the log once for each thing that it has not written itself."""
    async with quiet(bench) as one:
        before, phases, doubts = list(questions), len(one.phases), set()
        one.board.subscribe(lambda status: doubts.add(status.ownership_doubt))
        log = bench.log(bench.increments)
        most = 1
        match what:
            case "own commits":
                most = 0
                for number in range(5):
                    await bench.feed(1)
                    await one.position(11 + number)
                    await asyncio.sleep(1.7)
            case "aborted":
                bench.open_transaction("somebody", bench.increments, b"foreign")
                await bench.cluster.fence("somebody")
            case "foreign":
                log.append(None, b"foreign", (), 1, None)
            case "a stale leader":
                most, answered = 0, SimReader.end_offsets

                async def stale(self, partitions):
                    return {each: end - 3 for each, end in (await answered(self, partitions)).items()}

                monkeypatch.setattr(SimReader, "end_offsets", stale)
            case _:
                most = 0
        await asyncio.sleep(9.0)
        assert len(questions) - len(before) <= most
        assert most == 0 or log.end > one.runner.readable.last.owner_epoch
        assert set(one.phases[phases:]) <= {"live"}
        assert doubts <= {""}
