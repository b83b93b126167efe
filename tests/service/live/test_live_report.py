"""Tests of what the log says of dead letters, and of stream time in the future."""

import json
import logging
from types import SimpleNamespace

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.errors import RecordError, RecordId
from snapreplay.service.live import live_report
from snapreplay.service.live.live_report import DeadLetterLog
from snapreplay.times import time_text
from tests.support.in_memory import virtual
from tests.support.timed_bench import timed_app


def failed(offset, exception="KeyError", topic="payments"):
    record_id = RecordId(topic, 3, offset)
    return RecordError(f"{record_id}: handler raised {exception}: {offset}", record_id=record_id, exception=exception)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    loop = SimpleNamespace(time=lambda: now.seconds)
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    return now


def test_the_first_of_a_kind_is_shown_and_the_others_are_counted(clock, caplog):
    """Their texts differ, and would fill the log; another exception or topic is another kind."""
    log = DeadLetterLog(3)
    with caplog.at_level(logging.WARNING):
        log.committed([failed(7), failed(8), failed(9, "ValueError"), failed(10, topic="more")])
        for offset in range(20, 120):
            log.committed([failed(offset)])
        clock.seconds = 61.0
        log.committed([failed(500)])
    assert [record.message for record in caplog.records] == [
        "partition 3: dead letter: payments-3-7: handler raised KeyError: 7",
        "partition 3: dead letter: payments-3-9: handler raised ValueError: 9",
        "partition 3: dead letter: more-3-10: handler raised KeyError: 10",
        "partition 3: dead letter: payments-3-500: handler raised KeyError: 500 (repeated 102 times in the last 61 s)",
    ]


NOW_MS, DAY_MS = 2_000_000_000_000, 86_400_000


def said(caplog):
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if "moved stream time" in r.msg]
    caplog.clear()
    return lines


@virtual
async def test_the_future_is_a_warning(bench, monkeypatch, caplog):
    """Once, until stream time is behind the clock again; with what happened in the batch."""
    monkeypatch.setattr(live_report, "wall_ms", lambda: NOW_MS)
    caplog.set_level(logging.INFO, "snapreplay.partition")
    await bench.prepare(timed_app(), errors={"policy": "dead_letter"})
    log = bench.log("steps")
    start_ms = NOW_MS - 400 * DAY_MS

    async with bench.live() as one:

        async def send(what, number, at_ms):
            log.append(b"a", json.dumps([what, number]).encode(), (), at_ms, None)
            await one.position(log.end)
            return said(caplog)

        assert await send("set", 900, start_ms) == []
        assert await send("put", 1, start_ms + DAY_MS) == []
        assert await send("put", 1, start_ms) == []
        assert await send("put", 2, NOW_MS) == []
        ((level, text),) = await send("put", 3, NOW_MS + 365 * DAY_MS)
        assert level == "WARNING"
        assert "to 2034-05-18T03:33:20Z, 8760.0 hours ahead of the clock" in text
        assert f"the timestamp of record steps-0-{log.end - 1} lies in the future" in text
        assert "entries expired in this batch" in text or "entry expired in this batch" in text
        assert await send("put", 4, NOW_MS + 365 * DAY_MS + 1) == []
    assert time_text(1 << 60) == f"{1 << 60} ms"


@virtual
@pytest.mark.parametrize("behind", [0, 1])
async def test_the_record_from_the_future_is_named_before_it_is_processed(bench, monkeypatch, caplog, behind):
    """Also while timers fire up to its time, batch after batch, and where another record follows it in its batch."""
    monkeypatch.setattr(live_report, "wall_ms", lambda: NOW_MS)
    caplog.set_level(logging.INFO, "snapreplay.partition")
    await bench.prepare(reminding(), batch={"records_max": 10})
    log = bench.log("steps")
    async with bench.live() as one:
        for at_ms in (NOW_MS, NOW_MS + DAY_MS, *[NOW_MS] * behind):
            log.append(b"a", b"1", (), at_ms, None)
        await one.position(log.end)
    ((level, text),) = said(caplog)
    assert level == "WARNING"
    assert "the timestamp of the next record, steps-0-1 or behind it, lies in the future" in text


def reminding():
    """Each record is followed by an event a minute."""
    steps = Topic("steps")
    app = App("timed", inputs=[steps], state=lambda: MapState(str, int))

    @app.handler(steps)
    def on_step(record, state, out):
        state.schedule(record.key, record.timestamp_ms + 60_000, timer="ring")

    @app.timer("ring")
    def on_ring(timer, state, out):
        state.schedule(timer.key, timer.at_ms + 60_000, timer="ring")

    return app
