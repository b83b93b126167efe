"""Up to where an input is the log that was processed, on a real one that is cut, exchanged and trimmed."""

import pytest

from snapreplay.service.decisions.common_prefix import newest_common
from snapreplay.service.topics import stale_leader
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import OWN_KIND, Increment
from tests.support.accepting import accepted
from tests.support.stage import processed
from tests.support.tampering import (
    copy_again,
    messages,
    recreate,
    replace,
    tamper,
    trim,
    with_fields,
)

pytestmark = pytest.mark.kafka


async def common(then):
    """Offset of the newest record that is still the same; None when there is none."""
    (log,) = await then.here.read(then.increments)
    anchor = await newest_common(await then.here.context(), then.input, log[-1].offset)
    return anchor.offset if anchor is not None else None


async def test_the_newest_anchor_that_still_stands_is_found(past):
    """Batches of twenty: the whole log, one that lost its end and got another, and one that is new."""
    then = await past()
    assert await common(then) == 119
    await copy_again(then.here, then.input, 70)
    await then.here.feed(60)
    assert await common(then) == 59
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(130)
    assert await common(then) is None


async def test_anchors_that_were_trimmed_are_not_asked_for(past):
    """What is gone can be compared no more; what is left can."""
    then = await past()
    trim(then.here.bootstrap_servers, then.input, 0, 90)
    assert await common(then) == 119
    trim(then.here.bootstrap_servers, then.input, 0, 120)
    assert await common(then) is None


@pytest.mark.parametrize(("finding", "offset"), [(f"{OWN_KIND}-0", 59), ("input-replaced-0", None)])
async def test_what_an_owner_had_committed_before_it_wrote_its_memory_down_counts(
    past, finding, offset
):
    """It went on in the same log, which a backup may bring back as it was; what an operator decided is another one."""
    then = await past()
    (log,) = await then.here.read(then.increments)
    last = decode(log[-1].value)
    assert isinstance(last, Increment)
    anew = with_fields(decision={"finding": finding}, previous_offset=last.owner_epoch)
    await tamper(then.here, then.increments, RecordKind.INCREMENT, anew)
    await copy_again(then.here, then.input, 70)
    await then.here.feed(60)
    assert await common(then) == offset


async def test_anchors_of_an_input_that_was_given_up_do_not_count(past, monkeypatch):
    """A decision began the chain anew with another log; the old one comes back, record for record: what the chain has
    processed since is not in it."""

    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.3)
    then = await past()
    here = then.here
    old = messages(here.bootstrap_servers, then.input, 120)
    recreate(here.bootstrap_servers, then.input, 1)
    await here.feed(10)
    await accepted(here, (await here.failure()).error.hint)
    async with here.running() as service:
        await processed(service, {0: 10})
    replace(here.bootstrap_servers, then.input, old)
    assert await common(then) is None
