"""Tests of what is said again and again."""

from snapreplay.service.core.repeats import CAUSES_MAX, QUIET_SECONDS, Repeats


def test_the_first_one_is_said_at_once_and_then_a_sum_a_minute():
    """What was left out is in the next sum, and nothing is counted twice."""
    repeats, lines = Repeats(), []
    for second in range(150):
        said = repeats.met("lost", float(second))
        if said is not None:
            lines.append((second, said.times, said.left_out))
    assert lines == [(0, 1, 0), (60, 61, 60), (120, 121, 60)]


def test_a_line_says_how_often_it_was_left_out():
    """A new one does not; in between there is none."""
    repeats = Repeats()
    lines = [(second, repeats.line("lost", float(second))) for second in range(61)]
    assert [each for each in lines if each[1] is not None] == [
        (0, "lost"),
        (60, "lost (repeated 60 times in the last 60 s)"),
    ]


def test_each_cause_is_said_for_itself():
    """What is new is never left out."""
    repeats = Repeats()
    assert [bool(repeats.met(cause, 1.0)) for cause in ("a", "a", "b", "a", "b")] == [True, False, True, False, False]


def test_what_was_quiet_for_a_minute_is_new_again():
    """With the count from one; and it can be forgotten."""
    repeats = Repeats()
    repeats.met("a", 0.0)
    repeats.met("b", 1.0)
    repeats.forget(QUIET_SECONDS)
    assert list(repeats.causes) == ["b"]
    again = repeats.met("a", QUIET_SECONDS)
    assert again
    assert again.times == 1


def test_a_text_with_other_figures_each_time_takes_no_memory():
    """A clock that is wrong for a day is said again and again, with the time of each attempt."""
    repeats = Repeats()
    for attempt in range(8640):
        assert repeats.line(f"the clock is ahead: it showed {attempt}", 10.0 * attempt)
    assert len(repeats.causes) <= CAUSES_MAX
