"""State and outputs are written while the handler runs: what comes later is an error, and never lost unseen."""

import threading
from typing import Any

import pytest

from snapreplay.app.app import App
from snapreplay.app.harness import Harness
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.state.map import MapState

steps, sent = Topic("steps"), Topic("sent")

WRITES = {
    "send": lambda state, out: out.send(sent, key="a", value=1),
    "set": lambda state, out: state.__setitem__("a", 1),
    "delete": lambda state, out: state.pop("ada"),
    "schedule": lambda state, out: state.schedule("a", 5, timer="ring"),
}


def kept_by(does):
    kept: list[Any] = []
    app = App("gate", inputs=[steps], outputs=[sent], state=lambda: MapState(str, int))

    @app.handler(steps)
    def on_step(record, state, out):
        state["ada"] = 1
        kept[:] = [state, out]
        does(state, out)

    @app.timer("ring")
    def ring(timer, state, out):
        out.send(sent, key="ring", value=1)

    @app.timer("tick", every_ms=86_400_000)
    def tick(timer, state, out):
        state["ticks"] = 1

    return Harness(app), kept


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_after_the_handler_has_ended(write):
    """By what kept `state` or `out`: in a callback, or with the next record as yet to come."""
    harness, kept = kept_by(lambda state, out: None)
    harness.feed(steps, key="ada", value=None)
    with pytest.raises(UsageError, match="after its handler had ended: it would belong to no record") as refused:
        write(*kept)
    assert "before the handler returns" in refused.value.hint
    assert harness.state["ada"] == 1, "looking is no writing"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_other_thread_writes_while_the_handler_runs(write):
    """Which record it would be of is chance."""
    caught = []

    def in_thread(state, out):
        def run():
            try:
                write(state, out)
            except UsageError as error:
                caught.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    harness, _ = kept_by(in_thread)
    harness.feed(steps, key="ada", value=None)
    assert "in another thread than its handler's" in caught[0]
    assert harness.outputs(sent) == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_handler_itself_writes(write):
    """As before, timers included."""
    harness, _ = kept_by(write)
    harness.feed(steps, key="ada", value=None, timestamp_ms=1)
    harness.feed(steps, key="ada", value=None, timestamp_ms=10)
    harness.crash()


def test_a_delay_where_a_time_is_meant_is_refused():
    """It would fire at once. A late record's time is none: ten years are allowed."""
    now_ms = 1_700_000_000_000
    harness, _ = kept_by(lambda state, out: state.schedule("a", 60_000, timer="ring"))
    with pytest.raises(Exception, match="is 53 years before stream time") as refused:
        harness.feed(steps, key="ada", value=None, timestamp_ms=now_ms)
    assert "record.timestamp_ms + 60_000" in str(refused.value)
    late, _ = kept_by(lambda state, out: state.schedule("a", now_ms - 9 * 31_536_000_000, timer="ring"))
    late.feed(steps, key="ada", value=None, timestamp_ms=now_ms)


def test_a_record_with_an_absurd_time_does_not_make_every_later_time_a_delay():
    """Stream time never falls: nine years ahead, once, and what is set then is due at once."""
    now_ms = 1_700_000_000_000
    harness, _ = kept_by(lambda state, out: state.schedule("a", now_ms, timer="ring"))
    harness.feed(steps, key="ada", value=None, timestamp_ms=now_ms)
    harness.feed(steps, key="ada", value=None, timestamp_ms=now_ms + 9 * 365 * 86_400_000)
    harness.feed(steps, key="ada", value=None, timestamp_ms=now_ms)
