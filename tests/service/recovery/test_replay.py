"""The input once more: several inputs in the order of the first pass."""

import pytest
from msgspec.structs import replace

from snapreplay.app.ranges import Anchor, InputRange
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps, reference
from tests.support.owner import Owner
from tests.support.tampering import with_fields

# ---- two inputs --------------------------------------------------------------------------------


async def assert_merged(bench, one):
    """Outputs and state follow from one interleaving of both inputs, each whole and in order."""
    topics = [topic.name for topic in bench.app.inputs]
    for name in topics:
        await one.position(bench.log(name).end, name)
    inputs = {name: bench.log(name).committed() for name in topics}
    found = bench.log(bench.app.outputs[0].name).committed()
    expected, state = reference.merged(inputs, found, 0)
    assert reference.decoded(found) == expected
    assert one.view() == state


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_the_interleaving_of_two_inputs_is_replayed_as_it_was(bench, mode):
    """Recorded in the ranges: the digest of an order-sensitive fold is the same on both modes."""
    await bench.prepare(apps.pair("pair"), batch={"records_max": 13, "linger_ms": 0})

    async def feed_both(first, last):
        """Alternating little groups, so that batches hold both."""
        for start in range(first, last, 10):
            for topic in bench.app.inputs:
                records = [(f"k{n % 7}", {"amount": n}) for n in range(start, start + 10)]
                await bench.send(records, topic.name)

    await feed_both(0, 50)
    async with bench.live() as one:
        await assert_merged(bench, one)
        await one.snapshot()
    await feed_both(50, 150)
    async with bench.live() as one:
        await assert_merged(bench, one)
    ranges = [each.ranges for each in bench.batches()]
    assert any(len({part.topic for part in parts}) == 2 for parts in ranges), "no batch of both"
    async with bench.live(restore={"mode": mode}) as one:
        restore = one.status.restore
        assert (restore.mode, restore.proof.equal) == (mode, True)
        await assert_merged(bench, one)


DIFFERENCES = {
    "fewer": (
        lambda name: {"ranges": [InputRange(name, 100, 120, 21)]},
        "holds 20 records in offsets 100 to 120, but it held 21 when processed",
        -1,
    ),
    # of the last batch, another check comes first
    "others": (
        lambda name: {"anchors": {name: Anchor(99, 7, 7)}},
        "holds another record at offset 99 than the one processed in batch",
        -2,
    ),
}


@pytest.mark.parametrize(("then", "told", "number"), DIFFERENCES.values(), ids=DIFFERENCES)
async def test_an_input_with_other_records_than_then_is_noticed(bench, then, told, number):
    """FAILED with what is different, and the mode that still works."""
    await bench.past()
    forged = with_fields(**then(bench.input))
    bench.tamper(bench.increments, RecordKind.INCREMENT, forged, number)
    error = (await bench.failure(restore={"mode": "replay"})).error
    assert error.kind == "InputDiffers"
    assert told in error.message
    assert "`--set restore.mode=changes`" in error.hint


async def test_outputs_that_the_log_accepted_are_replayed_if_their_topic_takes_less_today(bench):
    """A lowered max.message.bytes stops no replay: the outputs are compared and dropped, not sent. It still stops what
    is sent again, by name."""
    await bench.prepare(apps.ledger("ledger", apps.grow))
    await bench.feed(3, padding=2000)
    async with bench.live() as one:
        await one.position(3)
    context = await bench.context(restore={"mode": "replay"})
    view = replace(context.view, output_limits={bench.output: 1000})
    one = Owner(bench, replace(context, view=view))
    bench.owners.append(one)
    await one.phase("live")
    restore = one.status.restore
    assert (restore.mode, restore.records_replayed, restore.proof.equal) == ("replay", 3, True)
    await bench.feed(1, padding=2000)
    status = await one.phase("failed")
    assert f"output to {bench.output} has" in status.error.message
    assert "the topic accepts at most 1,000" in status.error.message
