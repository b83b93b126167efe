"""Work that is done in steps."""

import pytest

from snapreplay.state.steps import Steps, all_of


def counting(done: list[int], *, fails: bool) -> Steps[str]:
    """Three steps."""
    for number in range(3):
        done.append(number)
        yield
    if fails:
        raise ValueError("at the end")
    return "answer"


def test_all_steps_are_taken_and_the_answer_is_given() -> None:
    """In order, once each."""
    done: list[int] = []
    assert all_of(counting(done, fails=False)) == "answer"
    assert done == [0, 1, 2]


def test_what_a_step_raises_is_raised() -> None:
    """Nothing of it is swallowed."""
    with pytest.raises(ValueError, match="at the end"):
        all_of(counting([], fails=True))
