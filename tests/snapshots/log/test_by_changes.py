"""Changes records of a batch whose increment is damaged: they count only as those that the chain misses."""

import pytest

from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import ChangesRecord
from snapreplay.snapshots.log.batches import Step, Unread, apply_changes
from snapreplay.snapshots.log.reading import TopicPartition
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.support.entries import increment

LOG = TopicPartition("app-increments", 0)


def taken(*numbers):
    """Apply batch 8, which continues a damaged batch 7 with changes of these (batch, part)."""
    changes = [encode(ChangesRecord(batch, part, {})) for batch, part in numbers]
    damaged = Unread(9, changes, DamagedError("offset 9: crc32"))
    step = Step(LOG, 12, increment(8, record_count=0), [], [damaged])
    all_of(apply_changes(step, store_of(MapState(str, int))))


def test_changes_of_a_damaged_increment_are_those_of_its_batch_in_order():
    """The parts of batch 7, from 0 on."""
    taken((7, 0), (7, 1))


@pytest.mark.parametrize("numbers", [[(6, 0)], [(8, 0)], [(7, 1)], [(7, 0), (7, 2)]])
def test_other_changes_before_a_damaged_increment_are_refused(numbers):
    """Of another batch, or with a part missing: the damage itself is reported."""
    with pytest.raises(DamagedError, match="offset 9: crc32"):
        taken(*numbers)
