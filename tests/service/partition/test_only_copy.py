"""A state that is only in the memory of a process: a warning comes before a stop."""

import asyncio
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service.core.kafka_errors import RefusedRecord, Unreachable
from snapreplay.service.recovery.acceptable_failures import Resolution
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.executor import RecoveryExecutor
from tests.simulation.cluster import SimCluster
from tests.simulation.producer import SimProducer
from tests.support import inside
from tests.support.accepting import accepted
from tests.support.owner import Hang, unreachable
from tests.support.stage import until


@pytest.mark.parametrize("recoverable", [False, True])
async def test_it_is_reported_while_a_broker_that_does_not_answer_is_asked(bench, monkeypatch, recoverable):
    """The alert begins again with each gap, and the question may wait for minutes."""
    one, hang = await bench.live_owner(), Hang()
    inside.monitor(one.runner).topic_missing("" if recoverable else "it was deleted")
    monkeypatch.setattr("snapreplay.service.partition.runner.newer_owner", hang)
    one.loses_answers()
    await bench.feed(1)
    await asyncio.wait_for(hang.called.wait(), 30)
    assert one.status.recoverable is (None if recoverable else False)


async def test_it_is_not_reported_any_more_when_the_state_of_another_owner_is_loaded(bench, monkeypatch):
    """That may take long, and the process may be stopped meanwhile."""
    pause = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
    one = await bench.live_owner(restore=pause)
    told, load = [], RecoveryExecutor.load

    async def noted(self, effect):
        told.append(one.status.recoverable)
        return await load(self, effect)

    inside.monitor(one.runner).topic_missing("it was deleted")
    inside.poll_by(one.live, unreachable)
    await one.phase("fencing")
    monkeypatch.setattr(RecoveryExecutor, "load", noted)
    two = await bench.live_owner("two", records=3)
    await two.end()
    assert one.status.recoverable is False
    told.clear()
    await one.phase("live")
    assert told == [None]


async def test_a_state_at_risk_is_looked_at_at_once_when_it_is_live_again(bench):
    """In its turn of a minute, a partition that loses its brokers more often would never be told for two minutes."""
    one, loop = await bench.owner(), asyncio.get_running_loop()
    epoch = (await one.phase("live")).owner_epoch
    inside.monitor(one.runner).topic_missing("it was deleted")
    inside.poll_by(one.live, unreachable)
    await one.again_live(epoch)
    began = loop.time()
    await until(lambda: one.status.recoverable is not None, "a look")
    assert loop.time() - began < 1


REFUSED = StopError("topic app-increments has cleanup.policy=compact, but it must be delete: state would be lost")


def compacted(bench):
    """Our records have no keys: nothing is left."""
    log = bench.log(bench.increments)
    for offset in range(log.end):
        log.compact_away(offset)


def deleted(bench):
    bench.trim(bench.increments, bench.log(bench.increments).end)


def cut(bench):
    bench.log(bench.increments).cut(bench.last_batch()[0])


async def refused(bench):
    """Return an owner of ten records that is FAILED, as a setting of an own topic is wrong."""
    one = await bench.owner()
    await one.feed(10)
    one.runner.refuse(REFUSED)
    await one.phase("failed")
    return one


async def killed(bench, one):
    one.task.cancel()
    await asyncio.wait([one.task])
    bench.owners.remove(one)


@pytest.mark.parametrize(
    ("empty", "kind", "cause"),
    [
        (compacted, "NotInitialised", "holds no record below it: they were compacted away (cleanup.policy=compact)"),
        (deleted, "NotInitialised", "the records before it were deleted (retention.ms, retention.bytes"),
        (cut, "LogCut", "committed batches are lost"),
    ],
    ids=["compacted", "deleted", "cut"],
)
async def test_a_state_whose_log_is_lost_while_it_is_failed_is_reported_and_written_aside(bench, empty, kind, cause):
    """A setting of the topic, or a broker, takes the last copy while nothing can be committed. Then even a kill loses
    nothing: the next start names the cause, and its hint leads to that state."""
    one = await refused(bench)
    await asyncio.sleep(20)
    assert (one.status.recoverable, one.status.snapshot) == (None, None), "the log has it"
    empty(bench)
    await until(lambda: one.status.recoverable is False and one.status.snapshot is not None, "written aside", 30.0)
    await until(lambda: one.status.snapshot.snapshot_id in one.status.unrecoverable_reason, "told", 30.0)
    await asyncio.sleep(20)
    assert one.status.recoverable is False
    await killed(bench, one)
    status = await bench.failure()
    assert status.error.kind == kind
    assert cause in status.error.message
    assert "snapreplay init" not in status.error.hint
    assert ("kafka-configs.sh" in status.error.hint) == (kind == "NotInitialised")
    await accepted(bench, status.error.hint, way=Resolution.FROM_SNAPSHOT)
    async with bench.live() as three:
        await bench.feed(10)
        await bench.assert_exactly_once(three)


async def resumes_as_the_hint_says(bench):
    """The next start is FAILED; its hint leads to the state that was written aside."""
    status = await bench.failure()
    await accepted(bench, status.error.hint)
    async with bench.live() as two:
        await bench.assert_exactly_once(two)


async def refused_by_broker(*_):
    """A compacted topic takes no record without a key."""
    raise RefusedRecord("the broker refuses a record for topic app-increments: InvalidRecord")


def refusing(monkeypatch):
    monkeypatch.setattr(RecoveryDriver, "_claim", refused_by_broker)


async def test_it_is_reported_while_claims_are_refused(bench, monkeypatch):
    """The partition is not FAILED before the settings are looked at, up to half a minute later."""
    one = await bench.owner()
    await one.feed(10)

    refusing(monkeypatch)
    inside.poll_by(one.live, unreachable)
    await one.phase("claiming")
    compacted(bench)
    await until(lambda: one.status.recoverable is False, "told", 15.0)
    await killed(bench, one)


async def test_a_batch_that_was_refused_is_not_written_aside(bench, monkeypatch):
    """It was never asked to commit: its records are still to be processed."""
    one = await bench.owner()
    await one.feed(10)
    refusing(monkeypatch)
    monkeypatch.setattr(SimProducer, "_fill", refused_by_broker)
    await bench.feed(10)
    await one.phase("claiming")
    compacted(bench)
    one.runner.refuse(REFUSED)
    await one.phase("failed")
    await until(lambda: one.status.snapshot is not None and one.status.snapshot.state == "written", "written", 30.0)
    await killed(bench, one)
    monkeypatch.undo()
    await resumes_as_the_hint_says(bench)


async def test_a_stop_that_can_commit_nothing_writes_the_state_aside(bench, monkeypatch):
    """At once: it is not known how much time is left. The error of the stop names the snapshot."""
    one = await refused(bench)
    refusing(monkeypatch)
    compacted(bench)
    one.runner.stop(last_snapshot=True)
    await until(lambda: one.status.snapshot is not None and one.status.snapshot.state == "written", "written", 10.0)
    await killed(bench, one)
    assert one.status.snapshot.snapshot_id in one.runner.unsaved.message
    monkeypatch.undo()
    await resumes_as_the_hint_says(bench)


def failing_writes(monkeypatch):
    """Let attempts to write a snapshot fail after one chunk, until the first list that is returned says something else.
    The second one is of those that failed."""
    appender, failing, failed = SimCluster.appender, ["half-way"], list[str]()

    async def refusing(self):
        made: Any = await appender(self)
        left = 1 if failing == ["half-way"] else 0
        append = made.append

        async def refuses(*given):
            nonlocal left
            if failing and not left:
                failed.append(failing[0])
                raise Unreachable("no leader")
            left -= 1
            return await append(*given)

        made.append = refuses
        return made

    monkeypatch.setattr(SimCluster, "appender", refusing)
    return failing, failed


async def test_attempts_that_fail_half_way_do_not_fill_the_topic(bench, monkeypatch):
    """What such an attempt has written stays at the end of the topic. Where nothing could be written, it is tried
    again soon."""
    failing, failed = failing_writes(monkeypatch)
    one = await refused(bench)
    compacted(bench)
    log = bench.log(bench.snapshots)
    await asyncio.sleep(300)
    assert 2 < log.end < 10
    failing[:] = ["at once"]
    await until(lambda: failed.count("at once") > 5, "attempts", 2000.0)
    left = log.end
    failing.clear()
    await until(lambda: one.status.snapshot.state == "written", "written", 10.0)
    assert log.end > left
    await killed(bench, one)


async def test_a_stop_writes_aside_at_once_although_attempts_failed_before(bench, monkeypatch):
    """The next attempt is minutes away, and the process may have seconds. The topic takes the state by now."""
    failing, _ = failing_writes(monkeypatch)
    one = await refused(bench)
    refusing(monkeypatch)
    compacted(bench)
    await asyncio.sleep(300)
    failing.clear()
    one.runner.stop(last_snapshot=True)
    await until(lambda: one.status.snapshot.state == "written", "written", 10.0)
    await killed(bench, one)


@pytest.mark.parametrize("recoverable", [True, False])
async def test_a_last_snapshot_is_written_where_a_recovery_would_fail(bench, recoverable):
    """Although the partition only moves to another process. No second ownership is needed for it."""
    one = await bench.owner()
    await one.feed(3)
    if not recoverable:
        inside.monitor(one.runner).topic_missing("it was deleted")
    await one.end()
    written = one.status.snapshot
    assert (written and written.state) == (None if recoverable else "pointed")
    assert "fencing" not in one.phases[one.phases.index("live") :]
