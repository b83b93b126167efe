"""One partition from assignment to end: what it does again, what it leaves to others, and how it stops."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from snapreplay.errors import StopError
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.operations import OperationState
from snapreplay.service.core import refusals
from snapreplay.service.core.kafka_errors import CommitInDoubt, NotAuthorized, Unreachable
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.live.pipeline import Live
from snapreplay.service.partition.incarnation import TopicsSeen
from snapreplay.service.partition.lifecycle import Lifecycle, RetryRequest, TakeoverBackoff
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.runtime.context import Identity
from snapreplay.snapshots.format.records import Claim
from tests.service.core.test_refusals import EXPECTED
from tests.support import apps, inside
from tests.support.deadlines import scaled
from tests.support.in_memory import virtual
from tests.support.owner import Hang, Owner, ends, unreachable
from tests.support.stage import settings_for, until


def claim_of(context):
    """Make the claim of a process that was started a second later, under the same name."""
    us = context.identity
    return Claim("c", "a", "k", "p", us.instance_id, us.host, us.pid + 1, us.started_at_ms + 1000)


async def test_it_runs_until_it_is_stopped(bench):
    """Every phase in order; CLOSED at the end, once."""
    one = await bench.live_owner()
    await one.here.feed(10)
    await one.position(10)
    await one.end()
    order = list(dict.fromkeys(one.phases))
    way = ["fencing", "claiming", "locating", "loading", "advancing", "live"]
    assert order == ["assigned", *way, "closed"]
    assert one.runner.store is None


async def test_a_doubtful_commit_is_followed_by_a_recovery(bench):
    """The log says what happened; nothing is lost or doubled, the error is gone when it is LIVE again, and counted."""
    one = await bench.live_owner()
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


async def test_a_state_is_let_go_before_another_one_is_loaded(bench, monkeypatch):
    """Never two of them in memory, whether the partition is restored or another process takes it."""
    one = await bench.live_owner()
    await one.here.feed(10)
    await one.position(10)
    first, epoch, load = one.runner.store, one.status.owner_epoch, RecoveryExecutor.load
    assert first.digest.count == 10
    held = []

    async def noted(self, effect):
        held.append(first.digest.count)
        return await load(self, effect)

    monkeypatch.setattr(RecoveryExecutor, "load", noted)
    monkeypatch.setattr(Live, "kept", lambda _: None)
    inside.poll_by(one.live, unreachable)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    await one.phase("live")
    second = one.runner.store
    await (await bench.owner("two")).phase("live")
    await one.here.feed(10)
    await one.phase("fenced")
    assert (held[0], second.digest.count, one.runner.store) == (0, 0, None)


@pytest.mark.parametrize("error", [CommitInDoubt, NotAuthorized])
async def test_a_doubtful_commit_does_not_take_the_partition_back(bench, error):
    """A fence is not always answered as one, and who is kept out may have a successor: the log is asked before
    anybody is fenced."""
    one = await bench.live_owner()

    async def torn(*_):
        raise error("the answer was lost")

    one.producer.commit = torn
    two = await bench.owner("two")
    epoch = (await two.phase("live")).owner_epoch
    await one.here.feed(10)
    await one.phase("fenced")
    await two.position(10)
    assert (two.status.owner_epoch, two.status.phase) == (epoch, "live")


async def test_a_partition_that_pauses_is_not_called_live(bench):
    """Ready means that it processes: not so while it waits for its next recovery."""
    one = await bench.live_owner(restore={"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000})

    inside.poll_by(one.live, unreachable)
    status = await one.phase("fencing")
    assert not one.runner.request_snapshot("test", lambda *_: None)
    await until(lambda: one.status.error, "the error")
    assert one.status.error.message == "no broker"
    assert status.owner_epoch is not None


async def test_a_newer_owner_is_left_alone_for_a_while(bench):
    """FENCED, and it says who: the group will take the partition from us, or give it back."""
    one = await bench.live_owner()
    two = await bench.live_owner("two")
    await one.here.feed(10)
    status = await one.phase("fenced")
    assert status.error.kind == "Superseded"
    assert str(two.context.identity.pid) in status.error.message
    await one.end()
    await two.position(10)
    assert len((await one.here.read(one.context.app.outputs[0].name))[0]) == 10


async def test_a_younger_process_of_the_same_name_ends_it(bench):
    """FENCED until the group gives it to us again, and the supervisor hears of it."""
    one = await bench.live_owner()
    two = await bench.live_owner()
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


async def test_who_steps_down_stops_also_without_another_claim(bench):
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
    assert (await one.phase("live")).restore.warm == "kept", "there was no write since"


async def test_without_input_the_log_tells_of_a_younger_process_too(bench):
    """The end of the log shows its claim."""
    one = await bench.live_owner()
    watching = asyncio.create_task(one.watch_end())
    two = await bench.live_owner()
    await one.phase("fenced")
    watching.cancel()
    assert isinstance(one.failures[0], DuplicateInstance)
    await two.feed(10)
    assert two.status.phase == "live"


@pytest.mark.parametrize("reached", ["recovering", "live"])
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


async def test_a_retry_resumes_at_exactly_the_failed_record(bench):
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
    view = replace(one.context.view, input_retention_ms=7)
    one.runner.retry(view, ends(heard))
    await one.phase("live")
    assert one.runner._context.view.input_retention_ms == 7


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


async def test_a_defect_stops_this_partition_and_says_so(bench, monkeypatch):
    """FAILED, called a defect; the process continues."""
    one = await bench.live_owner()

    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(one.live, "_settled", broken)
    await one.here.feed(10)
    status = await one.phase("failed")
    assert status.error.kind == "ZeroDivisionError"
    assert "defect" in status.error.hint
    one.runner.retry(one.context.view, lambda *_: None)
    status = await one.phase("live")
    assert status.restore.warm is None, "it is not known what the state in memory was"
    await one.position(10)
    assert len(await one.outputs()) == 10


async def test_a_stop_does_not_wait_for_a_recovery_or_a_pause(bench):
    """An interrupted restore loses nothing."""
    one = await bench.owner(restore={"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000})

    async def unreachable(_):
        raise Unreachable("no broker")

    one.context.cluster.fence = unreachable
    await until(lambda: one.status.error, "the error")
    await asyncio.wait_for(one.end(), 5)
    assert one.status.phase == "closed"


async def test_snapshots_are_taken_of_live_partitions_only(bench):
    """Asked before: no; asked then: yes, and the caller gets the answer."""
    one, told = await bench.owner(), list[Any]()
    assert not one.runner.request_snapshot("test", ends(told))
    await one.phase("live")
    assert one.runner.request_snapshot("test", ends(told))
    await until(lambda: told, "the news")
    assert told[0][0] == "skipped"


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
    assert len(epochs - {None}) <= 5, "two, and one more for each time that the broker was suspended"
    assert len((await here.read(here.app.outputs[0].name))[0]) == 20


async def test_a_batch_that_never_ends_in_time_is_made_smaller(bench):
    """A deterministic failure that looks like doubt: the same batch is not tried for ever."""
    one = await bench.live_owner(restore={"retry_backoff_ms": 10, "retry_backoff_max_ms": 20})
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


async def test_a_partition_that_comes_back_before_its_runner_has_ended_is_taken_back(bench):
    """It continues from memory, in the same task. After the end nothing can be taken back."""
    one = await bench.live_owner(records=10)
    one.runner.stop(last_snapshot=False)
    assert one.runner.take_back()
    await one.feed(10)
    await until(lambda: one.status.restore.warm, "it continues from memory")
    await one.end()
    assert not one.runner.take_back()


async def test_who_asks_the_log_after_a_fence_ends_when_it_is_stopped(bench, monkeypatch):
    """The question may wait for minutes, for a leader that is not there."""
    one, hang = await bench.live_owner(), Hang()
    monkeypatch.setattr("snapreplay.service.partition.runner.newer_owner", hang)
    await (await one.context.cluster.fence(one.context.transactional_id)).discard()
    await bench.feed(1)
    await asyncio.wait_for(hang.called.wait(), 30)
    await one.end()


NAMESAKE, GROWN = DuplicateInstance("another"), StopError("partitions were added")


def lifecycle() -> Lifecycle:
    context: Any = SimpleNamespace(expected=EXPECTED, settings=settings_for("nowhere:1"), partition=0)
    return Lifecycle(context)


def test_what_is_held_is_written_before_it_is_released() -> None:
    """A stop and a refusal interrupt all that is waited for, but not while the state is nowhere else."""
    one = lifecycle()
    for end in (one.stop, lambda: one.refuse(GROWN)):
        end()
        assert one.interrupted.is_set()
        one.update(is_holding=True)
        assert not one.interrupted.is_set()
        one.raise_refused()
        one.update(is_holding=False)
    one.take_back()
    assert not one.stopped.is_set()
    with pytest.raises(StopError, match="partitions were added"):
        one.raise_refused()


def test_a_process_of_our_name_is_the_least_of_what_refuses_us() -> None:
    """When it has gone, the rest is still true."""
    one = lifecycle()
    for error, counts in ((NAMESAKE, NAMESAKE), (GROWN, GROWN), (NAMESAKE, GROWN)):
        one.refuse(error)
        assert one.ownership.refused is counts


async def test_who_waits_gets_what_was_found():
    """Once: the next wait is for the next word."""
    retry, stopped = RetryRequest(), asyncio.Event()
    found = StopError("still broken")
    retry.ask(found, lambda *_: None)
    assert await retry.until_asked(stopped) is found
    waiting = asyncio.create_task(retry.until_asked(stopped))
    await asyncio.sleep(0)
    assert not waiting.done()
    stopped.set()
    assert await waiting is None


async def test_a_stop_comes_first():
    """Also when both are there."""
    retry, stopped = RetryRequest(), asyncio.Event()
    retry.ask(StopError("still broken"), lambda *_: None)
    stopped.set()
    assert await retry.until_asked(stopped) is None


async def test_an_answer_is_given_once():
    """And none without an owner."""
    retry, heard = RetryRequest(), list[Any]()
    retry.answer(OperationState.SUCCEEDED)
    retry.ask(StopError("still broken"), ends(heard))
    assert retry.under_way
    retry.answer(OperationState.FAILED, "again")
    retry.succeeded()
    assert not retry.under_way
    assert heard == [("failed", None, "again")]


async def test_a_retry_that_was_cancelled_does_not_begin():
    """The caller hears nothing more; the next one does."""
    retry, heard = RetryRequest(), list[Any]()
    retry.ask(StopError("cancelled before"), lambda *_: True)
    assert not retry.under_way
    retry.ask(StopError("still broken"), ends(heard))
    found = await retry.until_asked(asyncio.Event())
    assert isinstance(found, StopError)
    assert found.message == "still broken"


class Coordinator:
    """Gives these answers, the last one for ever; an error is no answer."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def is_assigned_to_us(self, partition):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def stands_back(group):
    """Make the backoff of partition 0 of an app whose group is `group`."""
    identity = Identity("process", "one", "host", 1, 1)
    context: Any = SimpleNamespace(partition=0, group=group, identity=identity)
    return TakeoverBackoff(context)


def seconds():
    return asyncio.get_running_loop().time()


@virtual
async def test_only_the_coordinators_word_ends_the_wait():
    """Another's, a rebalance (no owner) and no answer are all no; pauses grow from one question to the next."""
    group = Coordinator(False, Unreachable("no coordinator"), False, True)
    await stands_back(group).until_given(1, asyncio.Event())
    assert group.asked == 4
    assert 0.75 * 15 <= seconds() <= 15, "1, 2, 4 and 8 s, up to a quarter less"


@virtual
async def test_a_new_assignment_ends_a_pause_but_not_the_wait():
    """The coordinator is asked at once, and still decides."""
    group = Coordinator(False, True)
    back = stands_back(group)
    waiting = asyncio.create_task(back.until_given(1, asyncio.Event()))
    for asked in (1, 2):
        await asyncio.sleep(0)  # the pause has begun
        back.on_reassigned()
        await until(lambda: group.asked == asked, f"question {asked}")  # noqa: B023 - awaited here
    await waiting
    assert seconds() < 0.1


@virtual
async def test_a_stop_ends_the_wait_unasked():
    """A stopped process takes nothing back."""
    group, stopped = Coordinator(True), asyncio.Event()
    waiting = asyncio.create_task(stands_back(group).until_given(1, stopped))
    await asyncio.sleep(0)  # the pause has begun
    stopped.set()
    await waiting
    assert (group.asked, seconds()) == (0, 0)


@virtual
async def test_without_a_group_the_log_alone_decides():
    """One pause, and back. It is longer when the partition was taken several times in a row."""
    await stands_back(None).until_given(2, asyncio.Event())
    assert 1.5 <= seconds() <= 2


CONTEXT: Any = SimpleNamespace(increments=SimpleNamespace(topic="log"), snapshots=SimpleNamespace(topic="snaps"))
RECORDED = {"in": "A", "log": "B", "snaps": "C"}


def test_an_input_is_reported_each_time():
    """Looking again costs little, not looking may cost everything."""
    seen = TopicsSeen(CONTEXT)
    for _ in range(2):
        assert [each.found_id for each in seen.inputs(RECORDED, RECORDED | {"in": "Z", "log": "Z"})] == ["Z"]


def test_an_own_topic_is_reported_once_by_the_second_look():
    """A broker that lags may not know it yet; and once more when it is again what is recorded."""
    seen, looks = TopicsSeen(CONTEXT), ["Z", "Z", "Z", "B", "Z", "B", "B"]
    found = [seen.own(RECORDED, RECORDED | {"log": topic_id}) for topic_id in looks]
    assert [None if each is None else [change.topic for change in each] for each in found] == [
        *(None, ["log"], None, None, None, None, [])
    ]
