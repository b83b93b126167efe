"""A signal of the process ends it, with anything running."""

import signal
import time

import pytest

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Harness
from snapreplay.interrupts import of_a_signal
from snapreplay.state.map import MapState
from tests.support.fold_bench import payments, raw


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_passes(raised):
    """Ctrl-C and a signal handler that ends the program end it, also in the middle of a handler."""

    def ends(*_):
        raise raised

    waiting = App("waiting", inputs=[payments], state=lambda: MapState(str, int))

    @waiting.handler(payments)
    def on_record(record, state, out):
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)

    handler = signal.default_int_handler if raised is KeyboardInterrupt else ends
    former = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(raised):
            Harness(waiting, policy=ErrorPolicy.DEAD_LETTER).feed_batch([raw("payments", 0, {})])
    finally:
        signal.signal(signal.SIGINT, former)


def test_what_is_only_raised_is_of_no_signal():
    """By class nothing can be told: a handler may raise what Ctrl-C raises."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        assert not any(of_a_signal(each()) for each in (KeyboardInterrupt, SystemExit, OSError))
    finally:
        signal.signal(signal.SIGINT, former)
