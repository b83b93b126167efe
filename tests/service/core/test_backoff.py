"""Tests of how long a process stands back."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.backoff import JITTER_RATIO, PAUSE_SECONDS_MAX, fenced_pause_seconds


@given(st.integers(1, 10_000), st.text(max_size=8), st.integers(0, 1000))
def test_pauses_double_up_to_a_minute_and_jitter_only_shortens(times, process_id, partition):
    """Never longer than a minute, never shorter than three quarters of what the count says."""
    longest = min(PAUSE_SECONDS_MAX, 2.0 ** (times - 1)) if times < 20 else PAUSE_SECONDS_MAX
    pause = fenced_pause_seconds(times, process_id, partition)
    assert longest * (1 - JITTER_RATIO) <= pause <= longest


def test_two_processes_do_not_meet_again():
    """Of fifty pauses of two processes hardly one is the same."""
    pauses = [[fenced_pause_seconds(n, who, 0) for n in range(1, 51)] for who in ("a", "b")]
    assert sum(a == b for a, b in zip(*pauses, strict=True)) < 5
