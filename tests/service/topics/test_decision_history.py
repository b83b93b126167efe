"""The decisions that the chain holds, on a real log."""

import pytest

from snapreplay.service.core.chain import decided_at
from snapreplay.service.core.search import Window
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.decision_history import decisions_of
from snapreplay.service.topics.increments import last_in_window
from tests.support.accepting import REASON, accepted
from tests.support.stage import processed
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka


async def test_decisions_are_found_from_the_last_increment_back_to_the_logs_start(past):
    """Newest first, though batches and snapshots came after them; what was trimmed is not told any more."""
    then = await past()
    here, written = then.here, []
    for _ in range(2):
        await here.feed(20)
        trim(here.bootstrap_servers, then.input, 0, here.sent - 10)
        status = await here.failure()
        written.append((await accepted(here, status.error.hint))[1])
        async with here.running() as service:
            await processed(service, {0: here.sent})
    found = await _decisions(then)
    assert [each.offset for each in found] == [w.offset for w in reversed(written)]
    assert [each.batch for each in found] == [w.increment.batch for w in reversed(written)]
    assert {each.reason for each in found} == {REASON}
    assert all(each.finding.startswith("input-gap-") for each in found)
    assert "offsets 140 to 150 are never processed" in found[0].decided
    assert found[0].problem.startswith("InputTrimmed: ")
    assert found[0].at > found[1].at
    trim(here.bootstrap_servers, then.increments, 0, written[0].offset + 1)
    assert await _decisions(then) == found[:1]


async def _decisions(then):
    reader = await then.here.cluster.reader()
    log = TopicPartition(then.increments, 0)
    try:
        bounds = await reader.bounds(log)
        window = Window(bounds.start_offset, bounds.end_offset, 0)
        last = await last_in_window(reader, log, window)
        assert last is not None
        assert decided_at(last.increment, last.offset) < last.offset, "batches came after it"
        return await decisions_of(reader, log, last)
    finally:
        await reader.close()


async def test_a_chain_without_decisions_has_none(past):
    """The usual case costs no read."""
    then = await past()
    async with then.here.running() as service:
        assert service.restore_status()[0].decisions == ()
