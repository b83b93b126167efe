"""Where stream time jumps, the log says so."""

import json
import logging

from snapreplay.service.live import stream_time_log
from tests.support.in_memory import virtual
from tests.support.timed_bench import timed_app

NOW_MS, DAY_MS = 2_000_000_000_000, 86_400_000


def said(caplog):
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if "moved stream time" in r.msg]
    caplog.clear()
    return lines


@virtual
async def test_a_jump_is_said_and_the_future_is_a_warning(bench, monkeypatch, caplog):
    """A day or more, with what happened in it; ahead of the clock once, until it is behind again; never for the first
    record, small steps or late records."""
    monkeypatch.setattr(stream_time_log, "wall_ms", lambda: NOW_MS)
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
        ((level, text),) = await send("put", 2, NOW_MS)
        assert level == "INFO"
        assert "by 399.0 days, from 2032-04-1" in text
        ((level, text),) = await send("put", 3, NOW_MS + 365 * DAY_MS)
        assert level == "WARNING"
        assert "to 2034-05-18T03:33:20+00:00, 8760.0 hours ahead of the clock" in text
        assert "entries expired in this batch" in text or "entry expired in this batch" in text
        assert await send("put", 4, NOW_MS + 365 * DAY_MS + 1) == []
    assert stream_time_log._text(1 << 60) == f"{1 << 60} ms"
