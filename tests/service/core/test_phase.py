"""The table of transitions."""

import pytest

from snapreplay.service.core.phase import ALLOWED, RECOVERING, Phase, may_follow


@pytest.mark.parametrize("phase", [*RECOVERING, Phase.LIVE, Phase.FENCED, Phase.FAILED])
def test_everything_starts_again_from_the_fence(phase):
    """And from nowhere else: FAILED, too, needs a person and then the whole way to LIVE."""
    assert may_follow(phase, Phase.FENCING)
    assert not may_follow(phase, Phase.ASSIGNED)
    assert phase is not Phase.FAILED or not {*RECOVERING[1:], Phase.LIVE} & ALLOWED[phase]


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.FAILED])
def test_a_process_steps_down_with_all_its_partitions(phase):
    """Also with those that wait for their former runner, or for a person."""
    assert may_follow(phase, Phase.FENCED)
