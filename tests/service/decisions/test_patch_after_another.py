"""Two decisions at once about one partition: the slower one decides nothing, and says what to do."""

import pytest

from snapreplay.service.decisions.patch import carry_out, close
from snapreplay.service.publish.state import LogWentOn
from snapreplay.state.correction import NotCorrected
from tests.service.decisions.test_patch import LINE, RIGHT, WRONG, past, patched, proposed


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "its owner goes on"])
async def test_of_two_patches_at_once_the_slower_one_is_told_of_the_other(bench, goes_on):
    """It decides nothing. Run again, it finds the entry as the other one has left it: the same lines are done already,
    unless records have changed the entry since."""
    await past(bench)
    (slower,) = await proposed(bench, LINE)
    (begun,) = await patched(bench, LINE)
    if goes_on:
        async with bench.live() as one:
            await bench.feed(20)
            await one.position(160)
    with pytest.raises(LogWentOn, match=f"another decision was made .* offset {begun.offset}. Nothing") as refused:
        await carry_out(slower)
    assert refused.value.hint == "run the command again: it looks at the state as it is now"
    if goes_on:
        with pytest.raises(NotCorrected):
            await proposed(bench, LINE)
    else:
        assert await proposed(bench, LINE) == []


async def test_an_undo_at_once_is_not_done_already(bench, monkeypatch):
    """What it is to undo is committed, and its marker is still on the way: the entry seems to be as it was before."""
    await past(bench)
    monkeypatch.setattr(bench.broker, "_marker_lag", lambda: 2.0)
    (begun,) = await patched(bench, LINE)
    undo = {"key": LINE["key"], "expected": RIGHT, "value": WRONG}
    with pytest.raises(LogWentOn, match=f"another decision was made .* offset {begun.offset}. Nothing"):
        await proposed(bench, undo)
    (again,) = await proposed(bench, undo)
    await close([again])
