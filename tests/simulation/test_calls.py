"""Histories of an app that calls the outside: no request is forgotten, and each answer counts once."""

from typing import Any

import pytest

from tests.simulation.run import kept, run_seed


@pytest.mark.parametrize(
    ("also", "seeds"),
    [
        ({}, range(4)),
        ({"standbys": True}, range(2)),
        *(
            pytest.param(also, range(25), marks=pytest.mark.whole)
            for also in ({}, {"standbys": True}, {"decisions": True})
        ),
    ],
    ids=str,
)
def test_each_call_is_answered_and_each_answer_counts_once(also: Any, seeds: range) -> None:
    """Through crashes between commit and call, call and answer, answer and commit. A call may be made several times,
    but never before its request is committed; its later answers change nothing."""
    tally = kept(seeds, calls=True, **also)
    assert tally.counts["answer handled"] > 8 * len(seeds)
    assert tally.counts["call made twice"] > 2 * len(seeds)
    assert tally.counts["answer skipped"]
    assert tally.counts["crash before a call"]
    assert tally.counts["crash after a call"]


def test_a_seed_of_calls_is_a_history() -> None:
    """The same events at the same times: the pauses between attempts are drawn from the seed, too."""
    first, second = (run_seed(1, calls=True, trace=True).trace_digest for _ in range(2))
    assert first == second
