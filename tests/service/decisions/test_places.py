"""Tests of where an accepted state continues; that the records do so is shown on a real broker in tests/attacks, B3."""

import pytest

from snapreplay.service.decisions.places import newest_common, other_log, same_log
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import OWN_KIND, PATCHED_KIND, UPGRADED_KIND, Increment
from tests.support.accepting import accepted
from tests.support.tampering import with_fields

AGAIN = "processed again, outputs written a second time"
LOST = "are gone: their outputs stay, their effect on the state is lost"


@pytest.mark.parametrize(
    ("position", "reached", "start", "begin", "says"),
    [
        (120, 120, 0, 120, ""),
        (120, 120, 130, 130, "offsets 120 to 130 are never processed"),
        (80, 120, 0, 80, f"offsets 80 to 120 are {AGAIN}"),
        (300, 200, 0, 300, f"what was processed from there on is {AGAIN}"),
        (300, 200, 310, 310, "offsets 300 to 310 are gone: those that were processed keep"),
        (80, 120, 100, 100, f"offsets 80 to 100 {LOST}; offsets 100 to 120 are {AGAIN}"),
        (80, 120, 120, 120, f"offsets 80 to 120 {LOST}"),
        (80, 120, 130, 130, f"offsets 80 to 120 {LOST}; offsets 120 to 130 are never processed"),
        (80, None, 0, 80, f"what was processed from there on is {AGAIN}"),
        (80, None, 90, 90, "offsets 80 to 90 are gone: those that were processed keep their outputs"),
    ],
)
def test_each_record_is_held_processed_again_lost_or_skipped(position, reached, start, begin, says):
    """No range is said to be processed again that the input does not hold, and none is left out."""
    offset, line = same_log("in", position, reached, start)
    assert offset == begin
    assert line == "" if not says else says in line
    assert not says or line.startswith(f"in: resumes at offset {begin}; ")


@pytest.mark.parametrize(
    ("position", "common_end", "begin", "says"),
    [
        (120, None, 5, "from its start, offset 5; the old log's records from offset 120 on are never"),
        (80, None, 5, "offsets 80 to 120 of the old log have no effect on the state"),
        (120, 100, 100, "records of offsets 100 to 120 that are still the same are processed again"),
        (120, 100, 100, "offsets 100 to 120 of the old log keep their effect on the state"),
        (80, 100, 80, f"offsets 80 to 100 are {AGAIN}"),
        (80, 100, 80, f"offsets 100 to 120 of the old log {LOST}"),
        (110, 100, 100, f"offsets 110 to 120 of the old log {LOST}"),
        (2, 100, 5, f"offsets 2 to 5 {LOST}"),
    ],
)
def test_another_log_is_entered_where_the_state_has_not_been(position, common_end, begin, says):
    """Behind what both logs have, or earlier where the state is older than that."""
    offset, line = other_log("in", position, 120, 5, common_end)
    assert offset == begin
    assert says in line


def test_a_state_that_is_newer_than_the_log_keeps_what_it_contains():
    """Nothing of it is said to be never processed, or lost."""
    _, line = same_log("in", 300, 200, 0)
    assert "never processed" not in line
    _, line = other_log("in", 300, 200, 0, 250)
    assert "offsets 250 to 300 of the old log keep their effect on the state" in line
    assert "are gone" not in line


async def common(bench):
    """Offset of the newest record that is still the same; None when there is none."""
    (log,) = await bench.read(bench.increments)
    anchor = await newest_common(await bench.context(), bench.input, log[-1].offset)
    return anchor.offset if anchor is not None else None


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


@pytest.mark.parametrize(
    ("finding", "offset"),
    [*((f"{kind}-0", 59) for kind in (OWN_KIND, UPGRADED_KIND, PATCHED_KIND)), ("input-replaced-0", None)],
)
async def test_what_an_owner_had_committed_before_it_wrote_its_memory_down_counts(bench, finding, offset):
    """It continued in the same log, which a backup may bring back as it was; an operator's decision is another one."""
    await bench.past()
    (log,) = await bench.read(bench.increments)
    last = decode(log[-1].value)
    assert isinstance(last, Increment)
    decided = with_fields(decision={"finding": finding}, previous_offset=last.owner_epoch)
    bench.tamper(bench.increments, RecordKind.INCREMENT, decided)
    bench.copy_again(bench.input, 70)
    await bench.feed(60)
    assert await common(bench) == offset


async def test_anchors_of_an_input_that_was_given_up_do_not_count(bench):
    """A decision began a new chain with another log; the old one comes back, record for record: what the chain has
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
