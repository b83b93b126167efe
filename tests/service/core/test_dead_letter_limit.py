"""Dead letters in a row or by percentage of a window."""

from snapreplay.service.core.dead_letter_limit import DeadLetterGauge, DeadLetterLimits

LIMITS = DeadLetterLimits(in_a_row=5, percent=50.0, window_records=10)


def after(*batches):
    gauge = DeadLetterGauge()
    for applied, skipped in batches:
        gauge = gauge.after(applied, skipped, LIMITS)
    return gauge


def test_a_row_of_failures_is_a_flood():
    """Counted over batches; the limit itself is none."""
    assert after((0, 2), (0, 3)).flooded(LIMITS) is None
    assert "6 records in a row" in (after((0, 2), (0, 3), (0, 1)).flooded(LIMITS) or "")


def test_an_applied_record_ends_the_row():
    """A poison record now and then is none."""
    assert after((0, 4), (1, 0), (0, 4)).in_a_row == 4


def test_a_percentage_is_judged_when_the_window_is_full():
    """Half of the first two records is no flood, half of the window is."""
    assert after((1, 1)).flooded(LIMITS) is None
    assert after((2, 1), (2, 1), (2, 2)).flooded(LIMITS) is None
    assert after((4, 4), (1, 1)).flooded(LIMITS) is None
    assert "60 % of the last 10 records" in (after((3, 3), (1, 3)).flooded(LIMITS) or "")


def test_a_limit_of_all_records_is_never_passed():
    """100 % switches the percentage off."""
    all_of_them = DeadLetterLimits(10**9, 100.0, 10)
    assert DeadLetterGauge().after(0, 10, all_of_them).flooded(all_of_them) is None


def test_a_full_window_is_followed_by_an_empty_one():
    """Old failures are forgotten with their window; a row goes on into the next one."""
    full = after((7, 1), (0, 2))
    assert full.flooded(LIMITS) is None
    following = full.after(0, 1, LIMITS)
    assert (following.window_records, following.window_skipped, following.in_a_row) == (1, 1, 3)
