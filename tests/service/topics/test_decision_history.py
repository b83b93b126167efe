"""The decisions that the chain holds; that it names them: tests/service/core/test_chain.py."""

from snapreplay.service.clock import time_of
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.topics.decision_history import decisions_of
from snapreplay.snapshots.format.envelope import encode
from tests.support.entries import increment
from tests.support.in_memory import virtual

LOG = TopicPartition("app-increments", 0)


@virtual
async def test_decisions_are_found_from_the_last_increment_back_to_the_logs_start(bench, commit):
    """Newest first, though batches came after them; what was trimmed is not told, and none is the usual case."""
    await bench.past()
    offsets, reader = [-1], await bench.cluster.reader()
    for batch in (9, 11):
        said = {"finding": f"gap-{batch}", "problem": "p", "decided": "d", "reason": "r", "by": "b"}
        decided = increment(
            batch, decision=said, last_decision_offset=offsets[-1], written_at_ms=batch * 1000
        )
        offsets.append(await commit(LogRecord(LOG.topic, encode(decided))))
    _, first, second = offsets
    last = FoundIncrement(increment(12, last_decision_offset=second), second + 2, 0)
    found = await decisions_of(reader, LOG, last)
    assert [(each.offset, each.batch) for each in found] == [(second, 11), (first, 9)]
    newest = found[0]
    told = (newest.finding, newest.problem, newest.decided, newest.reason, newest.by, newest.at)
    assert told == ("gap-11", "p", "d", "r", "b", time_of(11_000))
    bench.trim(LOG.topic, first + 1)
    assert await decisions_of(reader, LOG, last) == found[:1]
    assert await decisions_of(reader, LOG, FoundIncrement(increment(12), 99, 0)) == ()
