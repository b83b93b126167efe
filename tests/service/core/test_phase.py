"""The table of transitions."""

import itertools

import pytest

from snapreplay.service.core.phase import ALLOWED, RECOVERING, Phase, may_follow


def test_every_phase_is_in_the_table():
    """A new phase without transitions would be a KeyError at run time."""
    assert set(ALLOWED) == set(Phase)


def test_recovery_goes_forward_one_step_at_a_time():
    """ASSIGNED → FENCING → CLAIMING → LOCATING → LOADING → ADVANCING → LIVE; only LOADING may be left out, when the
    state is still in memory."""
    way = [Phase.ASSIGNED, *RECOVERING, Phase.LIVE]
    for before, after in itertools.pairwise(way):
        assert may_follow(before, after)
    for first, third in zip(way, way[2:], strict=False):
        without_loading = (first, third) == (Phase.LOCATING, Phase.ADVANCING)
        assert may_follow(first, third) == without_loading


@pytest.mark.parametrize("phase", [*RECOVERING, Phase.LIVE, Phase.FENCED, Phase.FAILED])
def test_everything_starts_again_from_the_fence(phase):
    """And from nowhere else."""
    assert may_follow(phase, Phase.FENCING)
    assert not may_follow(phase, Phase.ASSIGNED)


def test_from_anywhere_a_partition_can_move_away():
    """CLOSED follows all, and nothing follows CLOSED."""
    assert all(may_follow(phase, Phase.CLOSED) for phase in Phase if phase is not Phase.CLOSED)
    assert not any(may_follow(Phase.CLOSED, phase) for phase in Phase)


def test_what_another_process_has_was_perhaps_never_begun_here():
    """A process steps down with all its partitions, also those that wait for their former runner or
    for a person."""
    assert may_follow(Phase.ASSIGNED, Phase.FENCED)
    assert may_follow(Phase.FAILED, Phase.FENCED)


def test_failed_needs_a_person_before_it_is_live():
    """Not even by way of loading."""
    assert not {Phase.LIVE, Phase.LOADING, Phase.ADVANCING} & ALLOWED[Phase.FAILED]
