"""A blocked loop: which listeners are called, and when."""

import asyncio

import pytest

from snapreplay.service.runtime import pulse as module
from snapreplay.service.runtime.pulse import STOOD_STILL_SECONDS, Pulse


@pytest.fixture
async def clock():
    """Seconds that only the test moves, and a pulse by them that beats; its timer never comes due here."""
    now = [1000.0]
    pulse = Pulse(lambda: now[0])
    beating = asyncio.create_task(pulse.beat())
    await asyncio.sleep(0)
    yield now, pulse
    beating.cancel()
    await asyncio.wait([beating])


async def test_who_listens_hears_how_long_it_stood_still(clock):
    """Before `look` returns, once, and only of more than a second."""
    now, pulse = clock
    heard: list[float] = []
    with pulse.notifying(heard.append):
        now[0] += STOOD_STILL_SECONDS
        pulse.look()
        assert heard == []
        now[0] += 90.0
        pulse.look()
        pulse.look()
        assert heard == [90.0]
    now[0] += 90.0
    pulse.look()
    assert heard == [90.0]


async def test_it_is_silent_until_all_have_heard_of_it(clock):
    """Another thread must not see a loop that turns and listeners that do not know yet that it was blocked."""
    now, pulse = clock
    seen: list[float] = []
    with pulse.notifying(lambda _: seen.append(pulse.silent_seconds)):
        now[0] += 5.0
        assert pulse.silent_seconds == 5.0
        pulse.look()
    assert seen == [5.0]
    assert pulse.silent_seconds == 0.0


def test_a_loop_that_does_not_beat_never_pauses():
    """A command that only looks, or a test, has no pulse."""
    now, heard = [1000.0], list[float]()
    pulse = Pulse(lambda: now[0])
    with pulse.notifying(heard.append):
        now[0] += 90.0
        pulse.look()
    assert (heard, pulse.silent_seconds) == ([], 0.0)


async def test_a_pulse_that_beats_looks_by_itself(monkeypatch):
    """No other caller has to."""
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    now, heard = [1000.0], asyncio.Event()
    pulse = Pulse(lambda: now[0])
    beating = asyncio.create_task(pulse.beat())
    await asyncio.sleep(0)
    with pulse.notifying(lambda _: heard.set()):
        now[0] += 2.0
        await asyncio.wait_for(heard.wait(), 10)
    beating.cancel()
    await asyncio.wait([beating])
    assert pulse.silent_seconds == 0.0
