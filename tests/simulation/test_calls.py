"""Histories of an app that calls the outside: no request is forgotten, and each answer counts once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.run import replay_command, run_block


@pytest.mark.parametrize(
    "also", [{}, {"standbys": True}, pytest.param({"decisions": True}, marks=pytest.mark.whole)], ids=str
)
def test_each_call_is_answered_and_each_answer_counts_once(also: Any) -> None:
    """Through crashes between commit and call, call and answer, answer and commit. A call may be made several times,
    but never before its request is committed; its later answers change nothing."""
    kind: Any = {"calls": True, **also}
    tally = run_block(range(25), **kind)
    broken = [f"seed {seed}: {problem}\n  {replay_command(seed, **kind)}" for seed, problem in tally.problems.items()]
    assert not broken, "\n".join(broken)
    assert tally.counts["answer handled"] > 200
    assert tally.counts["call made twice"] > 50
    assert tally.counts["answer skipped"]
    assert tally.counts["crash before a call"]
    assert tally.counts["crash after a call"]
