"""snapreplay.api.cpu_share: where CPU is short, requests take a share of a core; elsewhere all of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from snapreplay.api.cpu_share import BURST_SECONDS, COST_SECONDS_MAX, INTERVAL_SECONDS, SHARE, CpuShare, of_this_thread
from snapreplay.api.request_queue import RequestQueue

COST_SECONDS = 0.001


class Thread:
    """A thread that serves one request after the other for some time, and rests as it is told."""

    def __init__(self, waits: float, cost_seconds: float = COST_SECONDS) -> None:
        """Take `waits`: seconds that it waits for a core for each second in which it runs."""
        self.now = self.ran = self.waited = self.rested = 0.0
        self.waits, self._cost_seconds = waits, cost_seconds
        self.share = CpuShare(lambda: (self.ran, self.waited), lambda: self.now)

    def serve(self, seconds: float) -> float:
        """Return the seconds in which it ran."""
        before, until = self.ran, self.now + seconds
        while self.now < until:
            self.ran += self._cost_seconds
            self.waited += self.waits * self._cost_seconds
            rest_seconds = self.share.rest_seconds()
            self.rested += rest_seconds
            self.now += self._cost_seconds * (1 + self.waits) + rest_seconds
        return self.ran - before


def test_who_need_not_wait_for_a_core_takes_all_of_it() -> None:
    """A tenth of waiting is usual on a machine with free cores."""
    thread = Thread(waits=0.1)
    assert thread.serve(10) == pytest.approx(10 / 1.1, rel=0.01)
    assert thread.rested == 0


@pytest.mark.parametrize("waits", [0.3, 1.0, 5.0])
def test_a_flood_takes_its_share_where_cpu_is_short(waits: float) -> None:
    """Beyond the burst, and what it took before the first look."""
    thread = Thread(waits)
    assert thread.serve(INTERVAL_SECONDS) <= INTERVAL_SECONDS
    assert thread.serve(10) <= 10 * SHARE + BURST_SECONDS + COST_SECONDS
    assert thread.serve(10) == pytest.approx(10 * min(SHARE, 1 / (1 + waits)), rel=0.02)


def test_some_pages_do_not_rest_where_cpu_is_short() -> None:
    """Who has asked for little may ask for a burst at once, again and again."""
    thread = Thread(waits=1.0)
    thread.serve(2)
    for _ in range(3):
        thread.now += 2 * BURST_SECONDS / SHARE
        thread.share.rest_seconds()
        rested = thread.rested
        thread.serve(BURST_SECONDS)
        assert thread.rested == rested


def test_one_request_is_charged_with_so_much_at_most() -> None:
    """Streams run beside the requests, which must go on."""
    thread = Thread(waits=1.0, cost_seconds=0.5)
    thread.serve(10)
    thread.rested = 0.0
    thread.ran += 100
    assert thread.share.rest_seconds() <= COST_SECONDS_MAX / SHARE


def test_cpu_that_is_no_longer_short_is_taken() -> None:
    """After the next look."""
    thread = Thread(waits=1.0)
    thread.serve(5)
    thread.waits = 0.0
    thread.serve(INTERVAL_SECONDS + COST_SECONDS / SHARE)
    assert thread.serve(5) == pytest.approx(5, rel=0.01)


def test_this_machine_says_how_long_a_thread_ran() -> None:
    """By the real clocks, in seconds, beside what Python knows."""
    spent, ran_before = of_this_thread(), time.thread_time()
    began = spent()
    while time.thread_time() - ran_before < 0.1:
        pass
    ran, waited = (now - before for now, before in zip(spent(), began, strict=True))
    assert ran == pytest.approx(time.thread_time() - ran_before, abs=0.05)
    assert waited >= 0


async def test_the_next_request_begins_when_the_one_before_it_has_rested() -> None:
    """Also when nobody waited meanwhile."""
    loop, queue = asyncio.get_running_loop(), RequestQueue(lambda: 0.05)
    began = loop.time()
    await queue.place()
    await queue.place()
    assert loop.time() - began >= 0.05
