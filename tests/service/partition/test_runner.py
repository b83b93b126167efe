"""One partition from assignment to end: what it does again, what it leaves to others, and how it stops."""

import asyncio
import dataclasses
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.core import refusals
from snapreplay.service.core.headroom import Retention
from snapreplay.service.core.kafka_errors import CommitInDoubt, NotAuthorized, Unreachable
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.live.pipeline import Live
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.snapshots.format.records import Claim
from tests.support import apps, inside
from tests.support.deadlines import scaled
from tests.support.in_memory import virtual
from tests.support.owner import Owner, ends
from tests.support.stage import until


async def live(bench, *given, **tables):
    one = await bench.owner(*given, **tables)
    await one.phase("live")
    return one


def claim_of(context):
    """Make the claim of a process that was started a second later, under the same name."""
    us = context.identity
    return Claim("c", "a", "k", "p", us.instance_id, us.host, us.pid + 1, us.started_at_ms + 1000)


@virtual
async def test_it_runs_until_it_is_stopped(bench):
    """Every phase in order; CLOSED at the end, once."""
    one = await live(bench)
    await one.here.feed(10)
    await one.position(10)
    await one.end()
    order = list(dict.fromkeys(one.phases))
    way = ["fencing", "claiming", "locating", "loading", "advancing", "live"]
    assert order == ["assigned", *way, "closed"]
    assert one.runner.store is None


@virtual
async def test_a_doubtful_commit_is_followed_by_a_recovery(bench):
    """The log says what happened; nothing is lost or doubled, the error is gone when it is LIVE again, and counted."""
    one = await live(bench)
    labels = {"app": one.context.app.app_id, "partition": "0", "kind": "CommitInDoubt", "reaction": "retry"}
    counted_before = EVENTS.get_sample_value("snapreplay_failures_total", labels) or 0
    first_epoch = one.status.owner_epoch
    producer = one.producer
    commit = producer.commit

    async def torn(*arguments):
        await commit(*arguments)
        raise CommitInDoubt("the answer was lost")

    producer.commit = torn
    await one.here.feed(10)
    await until(lambda: one.status.owner_epoch > first_epoch, "another incarnation")
    await one.phase("live")
    await one.here.feed(10)
    await one.position(20)
    assert one.status.error is None
    assert EVENTS.get_sample_value("snapreplay_failures_total", labels) == counted_before + 1
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 20


@virtual
async def test_a_state_is_let_go_before_another_one_is_loaded(bench, monkeypatch):
    """Never two of them in memory, whether the partition is restored or another process takes it."""
    one = await live(bench)
    await one.here.feed(10)
    await one.position(10)
    first, epoch, load = one.runner.store, one.status.owner_epoch, RecoveryExecutor.load
    assert first.digest.count == 10
    held = []

    async def noted(self, effect):
        held.append(first.digest.count)
        return await load(self, effect)

    async def lost(*_):
        raise Unreachable("no broker")

    monkeypatch.setattr(RecoveryExecutor, "load", noted)
    monkeypatch.setattr(Live, "kept", lambda _: None)
    inside.poll_by(one.live, lost)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    await one.phase("live")
    second = one.runner.store
    await (await bench.owner("two")).phase("live")
    await one.here.feed(10)
    await one.phase("fenced")
    assert (held[0], second.digest.count, one.runner.store) == (0, 0, None)


@pytest.mark.parametrize("error", [CommitInDoubt, NotAuthorized])
@virtual
async def test_a_doubtful_commit_does_not_take_the_partition_back(bench, error):
    """A fence is not always answered as one, and who is kept out may have a successor: the log is asked before
    anybody is fenced."""
    one = await live(bench)

    async def torn(*_):
        raise error("the answer was lost")

    one.producer.commit = torn
    two = await bench.owner("two")
    epoch = (await two.phase("live")).owner_epoch
    await one.here.feed(10)
    await one.phase("fenced")
    await two.position(10)
    assert (two.status.owner_epoch, two.status.phase) == (epoch, "live")


@virtual
async def test_a_partition_that_pauses_is_not_called_live(bench):
    """Ready means that it processes: not so while it waits for its next recovery."""
    one = await live(bench, restore={"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000})

    async def lost(*_):
        raise Unreachable("no broker")

    inside.poll_by(one.live, lost)
    status = await one.phase("fencing")
    assert not one.runner.request_snapshot("test", lambda *_: None)
    await until(lambda: one.status.error, "the error")
    assert one.status.error.message == "no broker"
    assert status.owner_epoch is not None


@virtual
async def test_a_newer_owner_is_left_alone_for_a_while(bench):
    """FENCED, and it says who: the group will take the partition from us, or give it back."""
    one = await live(bench)
    two = await live(bench, "two")
    await one.here.feed(10)
    status = await one.phase("fenced")
    assert status.error.kind == "Superseded"
    assert str(two.context.identity.pid) in status.error.message
    await one.end()
    await two.position(10)
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 10


@virtual
async def test_a_younger_process_of_the_same_name_ends_it(bench):
    """FENCED until the group gives it to us again, and the supervisor hears of it."""
    one = await live(bench)
    two = await live(bench)
    await one.here.feed(10)
    status = await one.phase("fenced")
    assert isinstance(one.failures[0], DuplicateInstance)
    assert status.error.kind == "DuplicateInstance"
    assert one.runner.store is None
    await two.position(10)
    await two.end()
    one.runner.on_reassigned()
    await one.phase("live")
    await one.position(10)
    assert one.status.error is None
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 10


@virtual
async def test_who_steps_down_stops_also_where_nobody_claimed(bench):
    """All partitions at once, live or not yet begun; an assignment from before does not wake them."""
    one = await bench.owner()
    one.runner.on_reassigned()
    one.runner.refuse(refusals.duplicate_instance(one.context.expected, claim_of(one.context)))
    await one.phase("fenced")
    count = len(one.phases)
    await asyncio.sleep(0.3)  # what must not happen has no condition
    assert len(one.phases) == count
    one.runner.on_reassigned()
    await one.phase("live")
    one.runner.refuse(refusals.duplicate_instance(one.context.expected, claim_of(one.context)))
    await one.phase("fenced")
    one.runner.on_reassigned()
    assert (await one.phase("live")).restore.warm == "kept", "nobody has written since"


@virtual
async def test_without_input_the_log_tells_of_a_younger_process_too(bench):
    """Asked when the group makes us suspicious; the younger one asks and goes on."""
    one = await live(bench)
    two = await live(bench)
    two.runner.suspect()
    one.runner.suspect()
    await one.phase("fenced")
    assert isinstance(one.failures[0], DuplicateInstance)
    await bench.feed(10)
    await two.position(10)
    assert two.status.phase == "live"


@pytest.mark.parametrize("reached", ["recovering", "live"])
@virtual
async def test_a_refused_partition_stays_failed(bench, reached, monkeypatch):
    """The cluster changed under us: also a recovery under way ends, and nothing is tried again."""
    one = await bench.owner(timeouts={"metadata_ms": 60_000})
    if reached == "live":
        await one.phase("live")
    one.runner.refuse(StopError("partitions were added", hint="a new app id"))
    status = await one.phase("failed")
    assert (status.error.message, status.error.hint) == ("partitions were added", "a new app id")
    count = len(one.phases)
    await asyncio.sleep(0.3)  # what must not happen has no condition
    assert len(one.phases) == count


@virtual
async def test_a_retry_goes_on_at_exactly_the_failed_record(bench):
    """FAILED again while the cause lasts, then LIVE with the state that was in memory: nothing lost, nothing twice."""
    broken, heard = [True], list[Any]()

    def needs_a_neighbour(value, account):
        account["sum"] += value["amount"]
        if broken and value["amount"] == 5:
            raise OSError("the neighbour does not answer")

    await bench.prepare(apps.ledger("retry", needs_a_neighbour))
    one = await bench.owner()
    await bench.feed(10)
    await one.phase("failed")
    one.runner.retry(one.context.view, ends(heard))
    await until(lambda: heard, "an answer")
    ((state, _, detail),) = heard
    assert state == "failed"
    assert "the neighbour does not answer" in detail
    broken.clear()
    one.runner.retry(one.context.view, ends(heard))
    await until(lambda: len(heard) == 2, "an answer")
    assert heard[1] == ("succeeded", None, "")
    assert (one.status.error, one.status.restore.warm) == (None, "kept")
    assert await one.outputs() == [f"{bench.input}-0-{n}" for n in range(10)]


@virtual
async def test_a_retry_sees_the_cluster_as_it_is_now(bench):
    """Another refusal takes the place of the old one; without one the partition is LIVE with the new view."""
    one, heard = await bench.owner(), list[Any]()
    await one.phase("live")
    one.runner.refuse(StopError("partitions were added"))
    await one.phase("failed")
    one.runner.retry(StopError("a topic is gone"), ends(heard))
    await until(lambda: heard, "an answer")
    assert heard == [("failed", None, "a topic is gone")]
    assert one.status.error.message == "a topic is gone"
    view = dataclasses.replace(one.context.view, input_retention={"payments": Retention(7)})
    one.runner.retry(view, ends(heard))
    await one.phase("live")
    assert one.runner._context.view.input_retention_ms == 7


@virtual
async def test_whoever_waits_for_a_retry_hears_of_the_end(bench):
    """The partition was stopped before it was LIVE; a second one comes too late."""
    one, heard = await bench.owner(), list[Any]()
    await one.phase("live")
    one.runner.refuse(StopError("partitions were added"))
    await one.phase("failed")
    one.runner.retry(one.context.view, ends(heard))
    await one.end()
    one.runner.retry(one.context.view, ends(heard))
    assert [(state, detail) for state, _, detail in heard] == [
        ("failed", "the partition was stopped, or another process has it now"),
        ("failed", "the partition is closed by now"),
    ]


@virtual
async def test_a_defect_stops_this_partition_and_says_so(bench, monkeypatch):
    """FAILED, called a defect; the process goes on."""
    one = await live(bench)

    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(one.live, "_settled", broken)
    await one.here.feed(10)
    status = await one.phase("failed")
    assert status.error.kind == "ZeroDivisionError"
    assert "defect" in status.error.hint
    one.runner.retry(one.context.view, lambda *_: None)
    status = await one.phase("live")
    assert status.restore.warm is None, "nobody knows what the state in memory was"
    await one.position(10)
    assert len(await one.outputs()) == 10


@virtual
async def test_a_stop_does_not_wait_for_a_recovery_or_a_pause(bench):
    """An interrupted restore loses nothing."""
    one = await bench.owner(restore={"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000})

    async def unreachable(_):
        raise Unreachable("no broker")

    one.context.cluster.fence = unreachable
    await until(lambda: one.status.error, "the error")
    await asyncio.wait_for(one.end(), 5)
    assert one.status.phase == "closed"


@virtual
async def test_snapshots_are_taken_of_live_partitions_only(bench):
    """Asked before: no; asked then: yes, and whoever asked hears of it."""
    one, told = await bench.owner(), list[Any]()
    assert not one.runner.request_snapshot("test", ends(told))
    await one.phase("live")
    assert one.runner.request_snapshot("test", ends(told))
    await until(lambda: told, "the news")
    assert told[0][0] == "skipped"


@pytest.mark.kafka
async def test_a_handler_that_blocks_longer_than_a_transaction_may_take(stage, unique):
    """The batch before it is under way meanwhile and is lost to its deadline, once: not again and again."""
    here = await stage(apps.ledger(unique("blocking"), apps.sleep_when_told))
    factor = min(scaled(1), 4)  # on a busy machine a commit takes longer, too
    await here.send([("a", {"amount": 1, "sleep_s": 1.5 * factor if n == 10 else 0.0}) for n in range(20)])
    kafka = {"bootstrap.servers": here.bootstrap_servers, "request.timeout.ms": int(600 * factor)}
    timeouts = {"commit_ms": int(700 * factor), "transaction_ms": int(1400 * factor)}
    one = Owner(here, await here.context(kafka=kafka, timeouts=timeouts, batch={"records_max": 5, "linger_ms": 0}))
    epochs = set()
    one.board.subscribe(lambda status: epochs.add(status.owner_epoch))
    await one.position(20)
    await one.end()
    assert len(epochs - {None}) <= 5, "two, and one more for each time that the broker stood still"
    assert len((await here.read(here.app.outputs[0].name))[0]) == 20


@virtual
async def test_a_batch_that_never_ends_in_time_is_made_smaller(bench):
    """A deterministic failure that looks like doubt: the same batch is not tried for ever."""
    one = await live(bench, restore={"retry_backoff_ms": 10, "retry_backoff_max_ms": 20})
    fence, sizes = one.context.cluster.fence, []

    def slow(producer):
        commit = producer.commit

        async def too_slow(partition, outputs, records):
            sizes.append(len(outputs))
            if len(outputs) > 10:
                await producer.discard()
                raise CommitInDoubt("deadline passed")
            return await commit(partition, outputs, records)

        producer.commit = too_slow
        return producer

    async def fenced(transactional_id):
        return slow(await fence(transactional_id))

    one.context.cluster.fence = fenced
    slow(one.producer)
    await one.here.feed(100)
    await one.position(100)
    assert max(sizes) > 10
    assert len((await one.here.read(one.here.app.outputs[0].name))[0]) == 100


@virtual
async def test_a_partition_that_comes_back_before_its_runner_has_ended_is_taken_back(bench):
    """It goes on from memory, in the same task. After the end nothing can be taken back."""
    one = await live(bench)
    await bench.feed(10)
    await one.position(10)
    one.runner.stop(final_snapshot=False)
    assert one.runner.take_back()
    await bench.feed(10)
    await one.position(20)
    await until(lambda: one.status.restore.warm, "it goes on from memory")
    await one.end()
    assert not one.runner.take_back()


@virtual
async def test_who_asks_the_log_after_a_fence_ends_when_it_is_stopped(bench, monkeypatch):
    """The question may wait for minutes, for a leader that is not there."""
    one = await live(bench)
    asked = asyncio.Event()

    async def never(*_):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("snapreplay.service.partition.runner.newer_owner", never)
    await (await one.context.cluster.fence(one.context.transactional_id)).discard()
    await bench.feed(1)
    await asyncio.wait_for(asked.wait(), 30)
    await one.end()
