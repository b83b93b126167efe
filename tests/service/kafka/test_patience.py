"""What a producer learns about the pause between two transactions."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.kafka.patience import CALM_COUNT, PATIENCE_MS_MAX, STEP_MS, Patience

known = st.builds(Patience, st.floats(0, PATIENCE_MS_MAX), st.integers(0, CALM_COUNT - 1))
gaps = st.floats(0, 100)


@given(known, st.lists(st.tuples(st.booleans(), gaps), max_size=200))
def test_it_stays_within_its_bounds(patience, transactions):
    """With any answer of the coordinator; and the wait is never longer than the pause, nor negative."""
    for refused, gap_ms in transactions:
        patience = patience.after(refused=refused, gap_ms=gap_ms)
        assert 0 <= patience.pause_ms <= PATIENCE_MS_MAX
        assert 0 <= patience.calm_count < CALM_COUNT
        assert 0 <= patience.rest_s(gap_ms / 1000) <= patience.pause_ms / 1000


@given(known, gaps)
def test_a_refusal_makes_it_more_patient_at_once_and_calm_makes_it_less_after_a_while(patience, gap_ms):
    """What begins much later than any pause shows nothing, unless it is refused."""
    assert patience.after(refused=True, gap_ms=gap_ms).pause_ms >= patience.pause_ms
    calm = patience
    for _ in range(CALM_COUNT):
        calm = calm.after(refused=False, gap_ms=gap_ms)
        assert calm.pause_ms <= patience.pause_ms
    late = gap_ms > PATIENCE_MS_MAX
    assert calm == patience if late else calm.pause_ms <= max(0.0, patience.pause_ms - STEP_MS) + 1e-9


@given(st.floats(0, PATIENCE_MS_MAX), st.floats(0, PATIENCE_MS_MAX))
def test_it_finds_how_long_the_markers_of_a_cluster_take_and_follows_a_change(markers_ms, later_ms):
    """Close above it, with few refusals."""
    patience = Patience()
    for needed_ms in (markers_ms, later_ms):
        refusals = 0
        for number in range(600):
            refused = patience.pause_ms < needed_ms
            refusals += refused and number >= 300
            patience = patience.after(refused=refused, gap_ms=patience.pause_ms)
        assert abs(patience.pause_ms - needed_ms) <= 2 * STEP_MS
        assert refusals <= 300 / CALM_COUNT + 1
