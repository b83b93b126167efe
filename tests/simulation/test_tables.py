"""Histories of an app that joins its records with a table: it is compacted, has tombstones, and is read first."""

from typing import Any

import pytest

from tests.simulation.run import WANTED_COMPACTED, WANTED_TABLES, kept


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ({"tables": True}, range(4)),
        ({"broadcast": True, "standbys": True}, range(3)),
        *(
            pytest.param(kind, range(20), marks=pytest.mark.whole)
            for kind in (
                {"tables": True},
                {"tables": True, "standbys": True},
                {"broadcast": True, "standbys": True},
                {"tables": True, "calls": True},
                {"tables": True, "decisions": True},
                {"broadcast": True, "decisions": True},
            )
        ),
    ],
    ids=str,
)
def test_each_record_meets_the_table_of_its_time(kind: Any, seeds: range) -> None:
    """Through kills and moves: with the whole backlog of before its time, in any order of the fetches; without what a
    tombstone has deleted; and the cleaner takes nothing away that is processed."""
    tally = kept(seeds, **kind)
    wanted = (*WANTED_TABLES, *(WANTED_COMPACTED if kind.get("tables") else ()))
    assert not [each for each in wanted if not tally.counts[each]]
