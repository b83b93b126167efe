"""What the coordinator's memory of fences proves."""

import pytest

from snapreplay.service.core.lineage import LastFence, Lineage, unbroken

OURS = Lineage(7, 4)


@pytest.mark.parametrize(
    "last",
    [
        None,
        LastFence(OURS, "Empty"),
        LastFence(OURS, "Ongoing"),
        LastFence(OURS, "CompleteCommit"),
        LastFence(Lineage(7, 5), "CompleteAbort"),
        LastFence(Lineage(7, 5), "Empty"),
    ],
)
def test_nobody_has_committed_since(last):
    """The last fence is ours, or our transaction timed out, or nothing was ever committed with the one after it."""
    assert unbroken(OURS, last)


@pytest.mark.parametrize(
    "last",
    [
        LastFence(Lineage(7, 5), "CompleteCommit"),
        LastFence(Lineage(7, 5), "Ongoing"),
        LastFence(Lineage(7, 6), "Empty"),
        LastFence(Lineage(7, 6), "CompleteAbort"),
        LastFence(Lineage(8, 0), "Empty"),
    ],
)
def test_somebody_may_have_committed_since(last):
    """Another fence, with which something was or may have been committed."""
    assert not unbroken(OURS, last)
