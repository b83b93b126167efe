"""A patch decides nothing about a log that has lost its end since it was examined."""

import msgspec
import pytest

from snapreplay.app.names import witness_group
from snapreplay.service.core.witness import Witness
from snapreplay.service.decisions.patch import carry_out
from snapreplay.service.ports import CommittedOffset, TopicPartition
from snapreplay.service.publish.state import LogWentOn
from tests.service.decisions.test_patch import LINE, past, proposed


async def test_batches_that_a_witness_knows_are_not_decided_away(bench):
    """The owner has committed three more, and the log was rolled back to where it was. Nothing is written but the
    claim."""
    await past(bench)
    (patch,) = await proposed(bench, LINE)
    later = msgspec.structs.replace(patch.last.increment, batch=patch.last.increment.batch + 3)
    witness = Witness.of(bench.increments, later, patch.last.offset + 9)
    place = witness_group(bench.app.app_id), TopicPartition(bench.increments, 0)
    bench.broker.group_offsets[place] = CommittedOffset(patch.last.offset + 10, witness.metadata)
    before = bench.batches()
    with pytest.raises(LogWentOn, match="its log lost its end since it was examined"):
        await carry_out(patch)
    assert bench.batches() == before


async def test_a_log_that_was_made_again_since_the_look_is_not_decided_about(bench):
    """What was examined may be another state, even if all of it is there again."""
    await past(bench)
    (patch,) = await proposed(bench, LINE)
    bench.copy_again(bench.increments, len((await bench.read(bench.increments))[0]))
    with pytest.raises(LogWentOn, match="its log was cut, or made again, since it was examined"):
        await carry_out(patch)
