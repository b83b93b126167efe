"""Windows before the claim: they cover the log once, backwards, and end."""

from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.service.core.search import SearchWindow, first_window, windows


def test_the_first_window_is_the_two_offsets_before_the_claim():
    """Without aborted tails the last increment and its marker are there."""
    assert first_window(100, 0) == SearchWindow(98, 100)


def test_an_empty_log_has_no_window():
    """A claim at the log's start has nothing before it."""
    assert first_window(0, 0) is None
    assert first_window(40, 40) is None


@given(st.integers(0, 10**9), st.integers(0, 10**9))
@example(1000, 900)
def test_windows_cover_everything_before_the_claim_once(claim_offset, back):
    """Adjacent, growing, from the claim to the log's start, in a number that grows with the logarithm."""
    start = max(0, claim_offset - back)
    found = list(windows(claim_offset, start))
    ends = [claim_offset, *(w.start_offset for w in found)]
    assert ends[:-1] == [w.end_offset for w in found]
    assert ends[-1] == start
    assert len(found) <= 12
