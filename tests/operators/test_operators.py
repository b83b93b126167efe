"""Tests that what an operator does with Kafka's own tools ends in an app that goes on exactly, or that says truly what
it lost.

All cells: `make operators`. Here are four that lost records or a state silently in an earlier version.
"""

import pytest

from tests.operators.commands import COMMANDS
from tests.operators.ground import Ground, Kept
from tests.operators.matrix import WHENS, Cell, all_cells, carried_out

pytestmark = pytest.mark.kafka

TOLD = (
    Cell("delete the input, create it, load more", "frozen", Kept()),
    Cell("delete the increments topic, create it", "running", Kept(changes=False, snapshot=False)),
    Cell("delete both own topics, create them", "running", Kept(map=False, snapshot=False)),
    Cell("delete the snapshots topic", "running", Kept()),
)
QUICK = TOLD[1:2]


@pytest.mark.parametrize(
    "cell", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in TOLD], ids=str
)
@pytest.mark.timeout(400)
def test_nothing_ends_silently(cell, broker, unique, tmp_path):
    """Exact, also after one more kill; or named, and its own words lead on."""
    ground = Ground(broker.bootstrap_servers, unique("op"), cell.kept, tmp_path)
    try:
        ending = carried_out(cell, ground)
    finally:
        ground.close()
    assert not ending.wrong, (str(ending), ending.said, ending.done)


def test_every_command_meets_every_moment_and_kind_of_app():
    """A map with and without changes, and a state that is none; with a snapshot and without."""
    cells = all_cells()
    assert len(cells) == len(set(cells)) == len(COMMANDS) * len(WHENS) * 6
    assert set(TOLD) <= set(cells)
