"""A paused partition: it processes nothing, keeps everything, and stays paused under every owner."""

import asyncio
import json
from typing import Any

import pytest

from snapreplay.errors import NotCaughtUp
from snapreplay.service.embedding import CatchingUp
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.live.recoverability_monitor import WATCH_SECONDS
from snapreplay.snapshots.format.records import Paused
from tests.support import apps
from tests.support.clocks import time_is
from tests.support.stage import until
from tests.support.timed_bench import timed_app

WHY, LATER = Paused(1_000, "the service behind is down"), Paused(2_000, "another reason")


async def asked(one: Any, paused: Paused | None) -> tuple[Any, ...]:
    """Ask for it, and return what became of it."""
    told: list[Any] = []
    assert one.runner.request_pause(paused, lambda *news: told.append(news))
    await until(lambda: told, "an answer")
    assert len(told) == 1
    return (str(told[0][0]), told[0][2])


@pytest.mark.parametrize("changes", [True, False], ids=["changes", "replay"])
async def test_nothing_is_processed_until_it_is_resumed(bench, changes):
    """The lag is shown as it grows, snapshots are written, each later owner is paused, and then each record counts
    once."""
    await bench.prepare(changelog={"enabled": changes})
    await bench.feed(50)
    async with bench.live() as one:
        await one.position(50)
        assert await asked(one, WHY) == ("succeeded", "")
        assert (one.status.paused_since.timestamp(), one.status.paused_reason) == (1.0, WHY.reason)
        assert bench.batches()[-1].paused == WHY
        batch = one.status.batch
        await bench.feed(30)
        await until(lambda: one.status.inputs[0].lag == 30, "the lag", 2 * WATCH_SECONDS)
        assert one.status.batch == batch, "nothing was committed"
        await bench.feed(5)
        await one.snapshot()
    async with bench.live() as two:
        assert two.status.restore.proof.equal
        assert two.status.paused_reason == WHY.reason
        await until(lambda: two.status.inputs[0].lag == 35, "the lag", 2 * WATCH_SECONDS)
        assert await asked(two, WHY) == ("skipped", "it is paused already")
        assert await asked(two, None) == ("succeeded", "")
        await bench.assert_exactly_once(two)
        assert (two.status.paused_since, two.status.paused_reason) == (None, "")
        assert await asked(two, None) == ("skipped", "it is not paused")
        await bench.feed(5)
    async with bench.live() as three:
        await bench.assert_exactly_once(three)


async def test_no_markers_are_passed_in_a_pause(bench, monkeypatch):
    """Also not by a graceful stop, which commits the pointer to its snapshot."""
    await bench.prepare()
    await bench.feed(50)
    async with bench.live() as one:
        await one.position(50)
        assert await asked(one, WHY) == ("succeeded", "")
        monkeypatch.setattr(Fetcher, "beyond", lambda _, at: {name: each + 1 for name, each in at.items()})
        one.runner.stop(last_snapshot=True)
        await one.phase("closed")
    last = bench.batches()[-1]
    assert (last.paused, *last.positions.values()) == (WHY, 50)


async def test_the_batch_under_way_is_the_last_one(bench):
    """Asked in the middle of a flood, from within a handler: that batch says so, and what was fetched beyond waits."""
    answers: list[Any] = []

    def pause_in_the_middle(value, account):
        if value["amount"] == 10:
            bench.owners[-1].runner.request_pause(WHY, lambda *news: answers.append(news))
        apps.add(value, account)

    await bench.prepare(apps.ledger("app", pause_in_the_middle), batch={"records_max": 7, "linger_ms": 0})
    await bench.feed(100)
    async with bench.live():
        await until(lambda: answers, "an answer")
        assert bench.batches()[-1].paused == WHY, "told when it is committed"
        await asyncio.sleep(10)
        last = bench.batches()[-1]
        assert (last.positions[bench.input], last.paused, str(answers[0][0])) == (14, WHY, "succeeded")
    async with bench.live(apps.ledger("app", apps.add, version="2")) as two:
        await asked(two, None)
        await bench.assert_exactly_once(two)


async def test_who_waits_for_the_state_to_catch_up_hears_of_the_pause(bench):
    """At once, with the way out, as time alone does not help. Where nothing is left there is nothing to tell."""
    await bench.prepare()
    async with bench.live() as one:
        await asked(one, WHY)

        def waited():
            return CatchingUp(bench.cluster, lambda: {0: one.runner}, lambda: None).wait()

        await asyncio.wait_for(waited(), 60)
        await bench.feed(3)
        with pytest.raises(NotCaughtUp, match="is at 0 of 3, and it is paused: the service behind is down") as told:
            await asyncio.wait_for(waited(), 60)
        assert "`snapreplay resume --partition 0 --wait`" in told.value.hint
        await asked(one, None)
        await asyncio.wait_for(waited(), 60)


async def test_the_last_word_counts(bench):
    """A pause that is taken back before it is committed; then the same the other way round."""
    await bench.prepare()
    async with bench.live() as one:
        for first, last in ((WHY, None), (None, WHY)):
            told: Any = await asyncio.gather(asked(one, first), asked(one, last))
            assert list(told) == [("failed", "the opposite was requested before it was committed"), ("succeeded", "")]
            again: Any = await asyncio.gather(asked(one, None if last else WHY), asked(one, None if last else LATER))
            assert list(again) == [("succeeded", ""), ("skipped", "the same was requested before")]
            assert bench.batches()[-1].paused == (None if last else WHY)
            await asked(one, last)
            await bench.feed(3)
            await asyncio.sleep(2)
            assert one.status.inputs[0].position == bench.log(bench.input).end - (3 if last else 0)
            await asked(one, WHY)


async def test_what_was_not_committed_is_not_said_to_be(bench):
    """The answer is lost: the operation has failed, and the status says what the log says."""
    await bench.prepare()
    await bench.feed(5)
    async with bench.live() as one:
        await one.position(5)
        epoch = one.status.owner_epoch
        one.loses_answers()
        assert (await asked(one, WHY))[0] == "failed"
        await one.again_live(epoch)
        assert one.status.paused_since is None
        await bench.feed(5)
        await bench.assert_exactly_once(one)


async def test_stream_time_stands_and_no_record_of_the_pause_comes_too_late(bench, monkeypatch):
    """By the setting, time follows the clock on quiet input: a paused one is not quiet, not even when it is resumed."""
    now_ms, is_slow, fetched = [1_000_000], [False], Fetcher.next_batch

    async def after_a_while(*arguments):
        if is_slow[0]:
            await asyncio.sleep(1)
        return () if is_slow[0] else await fetched(*arguments)

    monkeypatch.setattr(Fetcher, "next_batch", after_a_while)
    time_is(monkeypatch, lambda: now_ms[0])
    await bench.prepare(timed_app(), errors={"policy": "dead_letter"}, stream_time={"idle_advance_ms": 100})
    log = bench.log("steps")
    log.append(b"a", json.dumps(["other", 30]).encode(), (), 1_000_000, None)
    async with bench.live() as one:
        await one.position(1)
        await asked(one, WHY)
        batch = one.status.batch
        now_ms[0] += 100_000
        log.append(b"b", json.dumps(["put", 1]).encode(), (), 1_000_010, None)
        await asyncio.sleep(20)
        assert one.status.batch == batch
        is_slow[0] = True
        await asked(one, None)
        await asyncio.sleep(20)
        is_slow[0] = False
        await one.position(2)
        await until(lambda: one.runner.store.timetable.pending_timers == 0, "the timer")
    told = [json.loads(each.value)[0] for each in bench.log("told").committed()]
    assert [each for each in told if each != "tick"] == ["record", "record", "bell"]


async def test_a_fetched_record_that_a_batch_had_no_room_for_waits(bench):
    """Its timers have filled the batch in which the pause was asked for."""
    app = timed_app()
    bell = app.timers["bell"].function
    answers: list[Any] = []

    def and_pause(timer, state, out):
        bell(timer, state, out)
        if not answers:
            bench.owners[-1].runner.request_pause(WHY, lambda *news: answers.append(news))

    app.timers["bell"] = app.timers["bell"]._replace(function=and_pause)
    await bench.prepare(app, batch={"records_max": 2, "linger_ms": 0})
    for key, do, number, at_ms in (*((key, "other", 8, 1) for key in "abcd"), ("a", "put", 1, 90)):
        bench.log("steps").append(key.encode(), json.dumps([do, number]).encode(), (), at_ms, None)
    async with bench.live() as one:
        await until(lambda: answers, "an answer")
        await asyncio.sleep(10)
        assert bench.batches()[-1].positions == {"steps": 4}
        await asked(one, None)
        await one.position(5)
        assert dict(one.runner.store.committed_view().items.items()) == {"a": 1}
