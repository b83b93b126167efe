"""Histories of an app that joins its records with a table: it is compacted, has tombstones, and is read first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.run import WANTED_TABLES, replay_command, run_block


@pytest.mark.parametrize(
    "also",
    [
        {},
        {"standbys": True},
        pytest.param({"calls": True}, marks=pytest.mark.whole),
        pytest.param({"decisions": True}, marks=pytest.mark.whole),
    ],
    ids=str,
)
def test_each_record_meets_the_table_of_its_time(also: Any) -> None:
    """Through kills and moves: with the whole backlog of before its time, whatever is fetched first; without what a
    tombstone has deleted; and the cleaner takes nothing away that is processed."""
    kind: Any = {"tables": True, **also}
    tally = run_block(range(20), **kind)
    broken = [f"seed {seed}: {problem}\n  {replay_command(seed, **kind)}" for seed, problem in tally.problems.items()]
    assert not broken, "\n".join(broken)
    assert not [each for each in WANTED_TABLES if not tally.counts[each]]
