"""Windows before the claim: they cover the log once, backwards, and end."""

from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.service.core.search import windows


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
