"""Tests of the part of an input that is the log that was processed: one that is cut, exchanged, trimmed."""

import pytest

from snapreplay.service.decisions.common_prefix import newest_common
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import OWN_KIND, Increment
from tests.support.accepting import accepted
from tests.support.in_memory import virtual
from tests.support.tampering import (
    with_fields,
)


async def common(bench):
    """Offset of the newest record that is still the same; None when there is none."""
    (log,) = await bench.read(bench.increments)
    anchor = await newest_common(await bench.context(), bench.input, log[-1].offset)
    return anchor.offset if anchor is not None else None


@virtual
async def test_the_newest_anchor_that_still_stands_is_found(bench):
    """Batches of twenty: the whole log, one that lost its end and got another, and one that is new."""
    await bench.past()
    assert await common(bench) == 119
    bench.copy_again(bench.input, 70)
    await bench.feed(60)
    assert await common(bench) == 59
    bench.recreate(bench.input)
    await bench.feed(130)
    assert await common(bench) is None


@virtual
async def test_anchors_that_were_trimmed_are_not_asked_for(bench):
    """What is gone can be compared no more; what is left can."""
    await bench.past()
    bench.trim(bench.input, 90)
    assert await common(bench) == 119
    bench.trim(bench.input, 120)
    assert await common(bench) is None


@pytest.mark.parametrize(("finding", "offset"), [(f"{OWN_KIND}-0", 59), ("input-replaced-0", None)])
@virtual
async def test_what_an_owner_had_committed_before_it_wrote_its_memory_down_counts(
    bench, finding, offset
):
    """It went on in the same log, which a backup may bring back as it was; what an operator decided is another one."""
    await bench.past()
    (log,) = await bench.read(bench.increments)
    last = decode(log[-1].value)
    assert isinstance(last, Increment)
    anew = with_fields(decision={"finding": finding}, previous_offset=last.owner_epoch)
    bench.tamper(bench.increments, RecordKind.INCREMENT, anew)
    bench.copy_again(bench.input, 70)
    await bench.feed(60)
    assert await common(bench) == offset


@virtual
async def test_anchors_of_an_input_that_was_given_up_do_not_count(bench):
    """A decision began the chain anew with another log; the old one comes back, record for record: what the chain has
    processed since is not in it."""
    await bench.past()
    old = bench.log(bench.input).committed()
    bench.recreate(bench.input)
    await bench.feed(10)
    await accepted(bench, (await bench.failure()).error.hint)
    async with bench.live() as one:
        await one.position(10)
    bench.recreate(bench.input, old)
    assert await common(bench) is None
