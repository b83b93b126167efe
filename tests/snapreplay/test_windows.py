"""Windows: each timestamp lies in the windows that are named for it, and in no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import UsageError
from snapreplay.windows import Window, hopping, tumbling

AT = st.integers(-100, 10_000)
SIZE = st.integers(1, 300)


@given(AT, SIZE, SIZE)
def test_a_timestamp_lies_in_its_windows(at_ms, one, other):
    """Of all windows of the grid, exactly those that hold it; tumbling is hopping without overlap."""
    size_ms, every_ms = max(one, other), min(one, other)
    grid = range((at_ms - size_ms) // every_ms * every_ms, at_ms + 1, every_ms)
    holding = [Window(s, s + size_ms) for s in grid if s <= at_ms < s + size_ms]
    assert hopping(at_ms, size_ms, every_ms) == holding
    assert hopping(at_ms, size_ms, size_ms) == [tumbling(at_ms, size_ms)]


@pytest.mark.parametrize(
    "call", [lambda: tumbling(1, 0), lambda: hopping(1, 10, -1), lambda: hopping(1, 10, 11), lambda: tumbling(1, True)]
)
def test_sizes_that_cannot_work_are_refused(call):
    """By name."""
    with pytest.raises(UsageError, match=r"(size|every)_ms="):
        call()
