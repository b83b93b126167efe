"""An owner that commits nothing looks each second where its log ends: how soon it hears of a newer owner, what does not
alarm it, and the age of what it shows until then."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import ownership_watch
from snapreplay.service.topics import increments, reading
from snapreplay.snapshots.format.records import Paused
from tests.simulation.reader import SimReader
from tests.support import inside
from tests.support.owner import ends, unreachable
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
    await one.feed(10)
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
async def test_a_quiet_owner_leaves_within_two_seconds_of_a_newer_claim(bench, offset):
    """And shows its age until then."""
    async with quiet(bench, 5.0 + offset) as one:
        claimed = len(one.phases)
        two = await bench.owner("two")
        await until(lambda: two.status is not None and two.status.owner_epoch is not None, "the claim")
        at = now()
        ages = []
        while (shown := one.runner.readable) is not None:
            ages.append((now() - at, shown.age_seconds))
            await asyncio.sleep(0.05)
        assert now() - at <= NOTICED_SECONDS
        await one.phase("fenced")
        assert "fenced" in one.phases[claimed:]
        assert all(age >= since for since, age in ages), "the log has shown no ownership of ours since the claim"
        await two.end()


async def test_what_a_quiet_owner_shows_is_as_old_as_the_last_look(bench, monkeypatch):
    """There is no answer for a minute: then the age is a minute."""
    async with quiet(bench) as one:
        assert one.runner.readable.age_seconds <= 1.0

        async def unanswered(*_):
            return {}

        with monkeypatch.context() as patch:
            patch.setattr(SimReader, "end_offsets", unanswered)
            patch.setattr(SimReader, "bounds", unreachable)
            await asyncio.sleep(60.0)
            assert one.runner.readable.age_seconds >= 60.0
        await until(lambda: one.runner.readable.age_seconds <= 1.0, "answers again")
        await one.feed(1)
        assert one.runner.readable.age_seconds <= 1.0


@pytest.mark.parametrize("error", [None, Unreachable("no broker answers"), ZeroDivisionError()], ids=repr)
async def test_a_doubt_that_comes_during_a_look_ends(bench, monkeypatch, error):
    """However the look ends, the doubt ends with it. Otherwise the partition would never be ready again."""
    read, begun, answered = ownership_watch.OwnershipWatch._why_lost, asyncio.Event(), asyncio.Event()

    async def slow(*given):
        if begun.is_set():
            return await read(*given)
        begun.set()
        await answered.wait()
        if error is not None:
            raise error
        return await read(*given)

    async with quiet(bench) as one:
        monkeypatch.setattr(ownership_watch.OwnershipWatch, "_why_lost", slow)
        await asyncio.wait_for(begun.wait(), 120)
        inside.watch(one.runner).stood_still(2.0)
        assert one.status.ownership_doubt
        answered.set()
        await until(lambda: not one.status.ownership_doubt, "no doubt")
        assert one.status.phase == "live"


@pytest.mark.parametrize("what", ["nothing", "own commits", "aborted", "foreign", "a stale leader"])
async def test_what_is_no_newer_owner_raises_no_alarm(bench, monkeypatch, questions, what):
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


LOSS_NOTICED_SECONDS = (ownership_watch.READ_EVERY_LOOKS + 1) * ownership_watch.LOOK_SECONDS + reading.PATIENCE_SECONDS

LOSSES = (
    "its last batch",
    "its last batch, then it has grown",
    "then to the same end",
    "its claim",
    "its claim, then to the same end",
    "a marker",
)


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
    if not loss.startswith("its claim"):
        await one.feed(10)
    await one.phase("live")
    await asyncio.sleep(2 * ownership_watch.LOOK_SECONDS)
    return one


def lose(bench, one, loss):
    log = bench.log(bench.increments)
    first, end = bench.last_batch()[0], log.end
    match loss:
        case "its claim" | "its claim, then to the same end":
            log.cut(one.status.owner_epoch)
        case "a marker":
            log.cut(end - 1)
        case _:
            log.cut(first)
    grown = end + 7 if loss.endswith("it has grown") else end if loss.endswith("to the same end") else 0
    while log.end < grown:
        log.append(None, b"foreign", (), 1, None)


@pytest.mark.parametrize("is_paused", [False, True], ids=["idle", "paused"])
@pytest.mark.parametrize("loss", LOSSES)
async def test_an_owner_that_commits_nothing_writes_what_its_log_has_lost(bench, watches, loss, is_paused):
    """It is not ready meanwhile. The next owner finds all of it, even if this process dies."""
    one = await idle(bench, watches, loss)
    if is_paused:
        told: list[Any] = []
        assert one.runner.request_pause(Paused(1, "a test"), ends(told))
        await until(lambda: told, "the pause")
        await asyncio.sleep(2 * ownership_watch.LOOK_SECONDS)
    seen: list[Any] = []
    one.board.subscribe(lambda status: seen.append((status.phase.value, bool(status.ownership_doubt))))
    epoch = one.status.owner_epoch
    lose(bench, one, loss)
    await until(lambda: ("fencing", False) in seen, "noticed", LOSS_NOTICED_SECONDS)
    await one.phase("live")
    assert one.status.owner_epoch != epoch or loss == "its claim"
    assert ("live", True) in seen, "not ready while brokers are asked"
    assert one.status.ownership_doubt == ""
    two = await bench.live_owner("two")
    if is_paused:
        assert two.runner.request_pause(None, ends([]))
    await bench.feed(10)
    await bench.assert_exactly_once(two)


async def test_a_leader_that_lags_behind_for_a_while_has_lost_nothing(bench, watches, monkeypatch):
    """It is asked again, and the owner continues by the same claim."""
    one = await idle(bench, watches)
    bounds, ends, doubts = SimReader.bounds, SimReader.end_offsets, dict[str, float]()
    one.board.subscribe(lambda status: doubts.setdefault(status.ownership_doubt, now()))

    def is_stale():
        noticed = [at for doubt, at in doubts.items() if doubt]
        return not noticed or now() < noticed[0] + reading.PATIENCE_SECONDS / 2

    async def lagging(self, partition):
        found = await bounds(self, partition)
        shows_less = partition.topic == bench.increments and is_stale()
        return found._replace(end_offset=found.end_offset - 3) if shows_less else found

    async def ending(self, partitions):
        return {each: end - 3 if is_stale() else end for each, end in (await ends(self, partitions)).items()}

    monkeypatch.setattr(SimReader, "bounds", lagging)
    monkeypatch.setattr(SimReader, "end_offsets", ending)
    epoch = one.status.owner_epoch
    await asyncio.sleep(LOSS_NOTICED_SECONDS)
    assert (one.status.phase, one.status.owner_epoch, one.status.ownership_doubt) == ("live", epoch, "")
    assert any("this process has written up to" in each for each in doubts)


async def test_a_doubt_ends_although_brokers_did_not_answer_when_asked_again(bench, watches, monkeypatch):
    """Also where records come meanwhile, and they end the looks."""
    one = await idle(bench, watches)
    said: list[str] = []

    async def answering(*asked):
        said.append(
            "stale" if not said else "silent" if one.status.ownership_doubt and "silent" not in said else "true"
        )
        if said[-1] == "silent":
            raise Unreachable("no broker answers")
        return "it ends before" if said[-1] == "stale" else await increments.why_gone(*asked)

    monkeypatch.setattr(ownership_watch, "why_gone", answering)
    await until(lambda: said, "a look", LOSS_NOTICED_SECONDS)
    await asyncio.sleep(3)
    for _ in range(29):
        await one.feed(1)
        await asyncio.sleep(1)
    assert (one.status.phase, one.status.ownership_doubt) == ("live", "")
