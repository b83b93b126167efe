"""The schedule is a function of the seed, and within its bounds."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import GAP_S, PICK_MAX, WARM_UP_S, Kind, Lane, draw

seeds = st.integers(0, 2**32)
lengths = st.floats(0.0, 600.0)
kinds = st.sets(st.sampled_from(Kind))


@given(seeds, lengths, kinds)
def test_the_same_seed_draws_the_same_faults(seed, seconds, chosen):
    """Whatever the order in which the kinds are given."""
    assert draw(seed, seconds, sorted(chosen)) == draw(seed, seconds, sorted(chosen, reverse=True))


@given(seeds, lengths, kinds)
def test_only_what_was_asked_for_one_at_a_time_and_within_the_run(seed, seconds, chosen):
    """Every fault has a chosen kind, a hold within its bounds, and heals before the next one of its lane, and the end:
    two broker faults at once would only be an outage, and that is a kind of its own."""
    faults = draw(seed, seconds, chosen)
    assert [fault.number for fault in faults] == list(range(len(faults)))
    for fault in faults:
        least, most = fault.kind.hold_s
        assert fault.kind in chosen
        assert WARM_UP_S + GAP_S[0] <= fault.begin_s <= fault.end_s <= seconds + 0.01
        assert least - 0.001 <= fault.hold_s <= most + 0.001
        assert 0 <= fault.pick < PICK_MAX
    for lane in Lane:
        for earlier, later in pairwise(fault for fault in faults if fault.lane is lane):
            assert later.begin_s >= earlier.end_s + GAP_S[0] - 0.01


@given(seeds, lengths)
def test_no_kind_waits_for_another_to_come_twice(seed, seconds):
    """Within a lane the kinds are drawn equally often, but for the deck that is still on the table."""
    for lane in Lane:
        mine = [kind for kind in Kind if kind.lane is lane]
        counts = Counter(fault.kind for fault in draw(seed, seconds) if fault.lane is lane)
        times = [counts[kind] for kind in mine]
        assert max(times) - min(times) <= 1


@given(seeds)
def test_five_minutes_hold_every_kind(seed):
    """The long run leaves nothing out, whatever its seed."""
    assert {fault.kind for fault in draw(seed, 300.0)} == set(Kind)


@given(seeds, st.floats(10.0, 300.0), st.floats(0.0, 300.0))
def test_a_longer_run_begins_like_the_shorter_one(seed, shorter, more):
    """A failure found in a long run can be sought in its first minutes."""

    def planned(seconds):
        faults = draw(seed, seconds)
        return {(f.kind, f.begin_s, f.hold_s, f.pick, f.snapshot) for f in faults}

    assert planned(shorter) <= planned(shorter + more)


@given(seeds)
def test_zombies_of_ninety_seconds_come_one_after_the_other(seed):
    """Six of them in 570 s, whatever the seed; they are drawn as the shorter ones are."""
    faults = draw(seed, 570.0, {Kind.ZOMBIE}, hold_s=90.0)
    assert [(fault.kind, fault.hold_s) for fault in faults] == [(Kind.ZOMBIE, 90.0)] * 6
    shorter = draw(seed, 570.0, {Kind.ZOMBIE})
    assert [fault.pick for fault in faults] == [fault.pick for fault in shorter[:6]]


def test_seeds_differ():
    """Another seed is another run."""
    assert len({tuple(draw(seed, 60.0)) for seed in range(50)}) == 50
