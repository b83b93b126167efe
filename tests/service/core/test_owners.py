"""Tests of when a process that stepped down looks again, and when it comes back."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.owners import JITTER_RATIO, PAUSE_SECONDS_MAX, SteppedDown, fenced_pause_seconds


def pauses(aside, *looks):
    """The pause before each of these looks."""
    found = []
    for there in looks:
        found.append(aside.pause_seconds)
        aside = aside.looked(there=there)
    return found


def test_it_looks_ever_more_slowly_but_twice_a_minute_at_least():
    """2 s, 4 s … 30 s, also without an answer."""
    assert pauses(SteppedDown(10.0), True, None, True, True, True, True) == [2, 4, 8, 16, 30, 30]
    assert SteppedDown(10.0, looks=10_000).pause_seconds == 30


def test_gone_once_may_be_a_restart():
    """It is back before the second look: nothing was taken from it, and the looking begins again."""
    aside = SteppedDown(10.0, looks=9).looked(there=False)
    assert (aside.over, aside.pause_seconds) == (False, 10.0)
    aside = aside.looked(there=True)
    assert (aside.over, aside.gone, aside.pause_seconds) == (False, False, 4)


def test_no_answer_is_not_gone():
    """Neither as the first nor as the second look."""
    aside = SteppedDown(10.0).looked(there=False).looked(there=None)
    assert not aside.over
    assert not aside.looked(there=False).over
    assert aside.looked(there=False).looked(there=False).over


@given(st.integers(1, 10_000), st.sampled_from(["one", "two", ""]), st.integers(0, 1000))
def test_pauses_double_up_to_a_minute_and_jitter_only_shortens(times, process_id, partition):
    """Never longer than a minute, never shorter than three quarters of what the count says."""
    longest = min(PAUSE_SECONDS_MAX, 2.0 ** (times - 1)) if times < 20 else PAUSE_SECONDS_MAX
    pause = fenced_pause_seconds(times, process_id, partition)
    assert longest * (1 - JITTER_RATIO) <= pause <= longest
