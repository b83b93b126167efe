"""A whole rack is lost at once, of three with ten processes and a hundred partitions."""

from __future__ import annotations

import pytest

from snapreplay.service.runtime.tasks import AT_ONCE
from tests.simulation.group import SESSION_SECONDS
from tests.simulation.rack_loss import Deployment, Loss, racks_of

PLANNED = Deployment(10, 100)
RACKS = racks_of(PLANNED)
SPLIT = {name: f"zone {number // 2 % 2}" for number, name in enumerate("adgjbcefhi")}
"""Each of two zones has two of the lost ones: what `client.rack` names is not what fails."""


@pytest.mark.whole
@pytest.mark.parametrize("told", [RACKS, SPLIT], ids=["racks", "other zones"])
def test_a_lost_rack_is_made_up_for_as_planned(told: dict[str, str]) -> None:
    """With the right racks every lost partition is taken over by its copy at once, and none is restored. With others,
    only what has its copy on the lost rack, too, waits for the session, and is restored or copied first."""
    loss = Loss(PLANNED, told)
    assert loss.run() is None
    assert len(loss.lost) == PLANNED.lost * PLANNED.owned
    assert (loss.copied == loss.lost) == (told is RACKS)
    assert loss.world.network.faults.counts["partition taken over"] == len(loss.copied)
    assert loss.restores.keys() <= {"copied", "restored"}
    assert (loss.restores["restored"] > 0) == (told is not RACKS)
    assert loss.restores["restored"] <= len(loss.lost - loss.copied)
    assert (loss.seconds < SESSION_SECONDS) == (told is RACKS)
    assert loss.most_under_way <= AT_ONCE
    assert loss.evened
