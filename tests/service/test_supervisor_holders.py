"""Tests of what the supervisor owes its runners, those that have not ended yet among them. Without a broker."""

import asyncio
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service import supervisor as module
from snapreplay.service.config.groups import TimeoutSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.ownership import Ended
from snapreplay.service.partition import runner as runner_module
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.partition.lifecycle import RetryRequest
from snapreplay.service.ports import EndSeen, TopicPartition
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.supervisor import Supervisor
from snapreplay.service.topics.requirements import MissingInput
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.owner import Hang, ends
from tests.support.stage import until


class Runner:
    """Runs until told; whether it then holds its state, and whether it is taken back, the test says."""

    def __init__(self, context: Any, *_: object) -> None:
        self.number, self.holding, self.unsaved = context.partition, False, None
        self.over, self.stops = asyncio.Event(), 0
        self.runs_beside: list[Runner] = []
        self.ids: list[dict[str, str]] = []
        self.deaths: list[BaseException] = []
        self.refusals: list[Exception] = []
        self.retried: list[Any] = []
        self.error: Exception | None = None
        self.is_quiet, self.ends = False, list[int | None]()
        MADE.append(self)

    @property
    def increments(self) -> TopicPartition:
        return TopicPartition("increments", self.number)

    def end_seen(self, end_offset: int | None, asked_at: float) -> None:
        self.ends.append(end_offset)

    async def run(self) -> None:
        self.runs_beside = [each for each in MADE if each.number == self.number and not each.over.is_set()]
        await self.over.wait()
        if self.error is not None:
            raise self.error

    def stop(self, *, last_snapshot: bool) -> None:
        self.stops += 1

    def take_back(self) -> bool:
        taken, self.holding = self.holding, False
        return taken

    def cut_off(self) -> None:
        self.over.set()

    def on_reassigned(self) -> None: ...

    @property
    def is_asked_to_end(self) -> bool:
        return self.stops > 0

    def view_seen(self, found: Any) -> None: ...

    def refuse(self, error: Exception) -> None:
        self.refusals.append(error)

    def retry(self, found: Any, done: Any) -> None:
        self.retried.append(found)

    def topics_seen(self, ids: Any) -> None:
        self.ids.append(ids)
        if self.error is not None:
            raise self.error

    def died(self, error: BaseException) -> None:
        self.deaths.append(error)


MADE: list[Runner] = []


async def topic_ids(names: Any) -> dict[str, str]:
    """Every topic has one."""
    return dict.fromkeys(names, "A")


class Watch:
    """Asks again and again."""

    async def ids(self, names: Any) -> dict[str, str]:
        return await topic_ids(names)

    async def close(self) -> None: ...


class Ends:
    """A reader that is asked where logs end. The first time it breaks, then it is silent, then all logs end at 7."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self.asked: list[set[TopicPartition]] = []
        self.topic_ids, self.is_closed = topic_ids, False

    async def ends_seen(self, partitions: Any) -> dict[TopicPartition, EndSeen]:
        self.asked.append(set(partitions))
        match len(self.asked):
            case 1:
                raise ZeroDivisionError("a defect")
            case 2:
                raise Unreachable("no broker answers")
            case _:
                return dict.fromkeys(partitions, EndSeen(7, 0.5))

    async def close(self) -> None:
        self.is_closed = True


READERS: list[Ends] = []


async def reader(*, topic_ids: Mapping[str, str], **_: object) -> Ends:
    READERS.append(Ends(topic_ids))
    return READERS[-1]


CLUSTER: Any = SimpleNamespace(
    topic_watch=Watch, topic_ids=topic_ids, offset_committer=lambda _: Watch(), reader=reader
)
A_VIEW: Any = SimpleNamespace(output_limits={}, matched=(), misfits=(), left_out={}, topic_ids={})


class Looks:
    """A look at the cluster: what is found, and how often."""

    found: Any = A_VIEW
    count = 0

    async def inspect(self, *_: object, **__: object) -> Any:
        self.count += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def two_more(self) -> None:
        before = self.count
        await until(lambda: self.count > before + 1, "two looks")


@pytest.fixture
def looks(monkeypatch):
    """A hundred times a second."""
    made = Looks()
    monkeypatch.setattr(module, "inspect", made.inspect)
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)
    return made


@pytest.fixture
def make(monkeypatch):
    """Make a supervisor of runners that do nothing."""
    MADE.clear()
    READERS.clear()
    monkeypatch.setattr(module, "PartitionRunner", Runner)
    monkeypatch.setattr(module, "TOPIC_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(module, "END_WATCH_SECONDS", 0.01)
    settings = Settings(kafka={"bootstrap.servers": "127.0.0.1:1"}, timeouts=TimeoutSettings(revoke_ms=100))
    rest: Any = (CLUSTER, A_VIEW, None, StatusBoard(), lambda *_: None)
    return lambda: Supervisor(apps.ledger("held"), settings, *rest)


@pytest.fixture
async def supervisor(make):
    """Stop it at the end."""
    yield (made := make())
    for runner in MADE:
        runner.over.set()
    await made.stop(last_snapshot=False, deadline_seconds=5.0)


async def released(supervisor, number=0):
    """The partition was ours, and is another process's now."""
    supervisor.assigned({number})
    runner = MADE[-1]
    runner.holding = True
    supervisor.assigned(set())
    await until(lambda: runner.stops, "the release")
    return runner


@virtual
async def test_a_holder_whose_partition_came_back_is_reported_at_the_end(make, monkeypatch):
    """Its loss is not hidden by the runner behind it, and the watch over the topics reaches it until it ends."""
    first = await released(supervisor := make())
    monkeypatch.setattr(Runner, "take_back", lambda _: False)
    supervisor.assigned({0})
    first.unsaved = StopError("the state is lost")
    stopping = asyncio.create_task(supervisor.stop(last_snapshot=False, deadline_seconds=0.3))
    seen = len(first.ids)
    await until(lambda: len(first.ids) > seen + 2, "the watch")
    await stopping
    assert supervisor.unsaved == [first.unsaved]


@virtual
async def test_a_partition_that_comes_back_waits_for_its_former_runner(make, monkeypatch):
    """Never two with the same transactional id in one process."""
    first = await released(supervisor := make())
    monkeypatch.setattr(Runner, "take_back", lambda _: False)
    supervisor.assigned({0})
    second = supervisor.runners[0]
    await until(lambda: second.runs_beside, "its run")
    assert second is not first
    assert second.runs_beside == [second]


@virtual
async def test_a_holder_that_a_defect_has_ended_is_reported_at_the_end(make):
    """Its state is lost: the exit code must show it."""
    first = await released(supervisor := make())
    first.unsaved, first.error = StopError("the state is lost"), ZeroDivisionError("a defect")
    first.over.set()
    await until(lambda: first.deaths, "the defect")
    await supervisor.stop(last_snapshot=False, deadline_seconds=5.0)
    assert supervisor.unsaved == [first.unsaved]


@virtual
async def test_a_holder_takes_its_partition_back(make):
    """No second runner hides what keeps it; the deadline of its release does not end it any more."""
    first = await released(supervisor := make())
    supervisor.assigned({0})
    assert len(MADE) == 1
    assert dict(supervisor.runners) == {0: first}
    await asyncio.sleep(0.2)  # what must not happen has no condition
    assert not first.over.is_set()
    assert dict(supervisor.runners) == {0: first}
    supervisor.assigned(set())
    await until(lambda: first.stops == 2, "another release")


async def test_a_runner_that_ends_with_a_defect_is_reported(supervisor):
    """Its task would not be awaited before the process ends."""
    supervisor.assigned({0})
    MADE[0].error = ZeroDivisionError("a defect")
    MADE[0].over.set()
    await until(lambda: MADE[0].deaths == [MADE[0].error], "the defect")


@virtual
async def test_quiet_partitions_are_asked_for_in_one_question(make, caplog):
    """Of all that are quiet, also of those that end; the others hear nothing. Who cannot be asked hears so."""
    await released(supervisor := make())
    supervisor.assigned({1, 2, 3})
    for runner in MADE[:3]:
        runner.is_quiet = True
    await until(lambda: all(len(each.ends) > 3 for each in MADE[:3]), "ends")
    (asked,) = [each.asked for each in READERS]
    assert all(each == {runner.increments for runner in MADE[:3]} for each in asked)
    assert [each.ends[:4] for each in MADE] == [[None, None, 7, 7]] * 3 + [[]]
    assert "a defect" in caplog.text
    for runner in MADE:
        runner.over.set()
    await supervisor.stop(last_snapshot=False, deadline_seconds=5.0)


@virtual
async def test_increments_that_were_created_again_are_watched_by_their_new_id(make, monkeypatch):
    """By the dead one each quiet log would be asked for, every second."""
    view = SimpleNamespace(**{**vars(A_VIEW), "topic_ids": {"held-increments": "A"}})
    supervisor = make()
    monkeypatch.setattr(supervisor, "_view", view)
    supervisor.assigned({0})
    MADE[0].is_quiet = True
    await until(lambda: READERS and len(READERS[0].asked) > 3, "questions")
    view.topic_ids = {"held-increments": "B"}
    await until(lambda: len(READERS) > 1 and len(READERS[1].asked) > 3, "more of them")
    assert [(each.topic_ids, each.is_closed) for each in READERS] == [
        ({"held-increments": "A"}, True),
        ({"held-increments": "B"}, False),
    ]
    MADE[0].over.set()
    await supervisor.stop(last_snapshot=False, deadline_seconds=5.0)


async def test_the_watch_over_the_topics_outlives_a_defect(supervisor, caplog):
    """It is logged, and the next second is another one: of the inputs and of both own topics."""
    supervisor.assigned({0})
    MADE[0].error = ZeroDivisionError("a defect")
    await until(lambda: len(MADE[0].ids) >= 3, "the watch")
    assert "ZeroDivisionError" in caplog.text
    assert set(MADE[0].ids[-1]) == {"payments-held", "held-increments", "held-snapshots"}
    MADE[0].error = None


async def test_a_changed_cluster_is_said_once_and_refuses_all(looks, supervisor, caplog):
    """However often it is looked at: what runs, and what is assigned later, until it is right again."""
    supervisor.assigned({0})
    error = looks.found = StopError("partitions were added")
    await until(lambda: MADE[0].refusals, "the refusal")
    supervisor.assigned({0, 1})
    assert MADE[1].refusals[0] is error
    await looks.two_more()
    assert caplog.text.count("the cluster has changed") == 1
    looks.found = A_VIEW
    await looks.two_more()
    supervisor.assigned({0, 1, 2})
    assert MADE[2].refusals == []


@pytest.mark.parametrize("error", [MissingInput("gone"), ZeroDivisionError("a defect")])
async def test_a_look_that_refuses_no_holder_is_followed_by_another(looks, supervisor, caplog, error):
    """A missing input is its partitions' business, which wait for it; a defect is logged."""
    supervisor.assigned({0})
    looks.found = error
    await looks.two_more()
    assert not MADE[0].refusals
    assert ("failed; trying again" in caplog.text) is isinstance(error, ZeroDivisionError)


async def test_a_runner_that_cannot_be_told_does_not_end_the_watch(looks, supervisor):
    """What it raises is logged, and the next look tells it again."""
    supervisor.assigned({0})
    vars(MADE[0]).update(view_seen=lambda _: 1 / 0, refuse=lambda _: 1 / 0)
    for looks.found in (A_VIEW, StopError("one more")):
        await looks.two_more()


@pytest.mark.parametrize("error", [Unreachable("no broker"), ZeroDivisionError("a defect")])
async def test_a_retry_that_cannot_look_at_the_cluster_ends(looks, supervisor, error):
    """With the reason, and the next one may do better."""
    heard: list[tuple[Any, ...]] = []
    supervisor.assigned({0})
    looks.found = error
    supervisor.retry(0, ends(heard))
    await until(lambda: heard, "an answer")
    assert (heard[0][0], str(error) in heard[0][2], MADE[0].retried) == ("failed", True, [])
    looks.found = A_VIEW
    supervisor.retry(0, ends(heard))
    await until(lambda: MADE[0].retried == [A_VIEW], "the retry")
    supervisor.retry(1, ends(heard))
    assert heard[1:] == [("failed", None, "this process no longer owns the partition")]


@pytest.mark.parametrize("is_inspecting", [False, True])
async def test_a_retry_ends_when_the_process_stops(supervisor, monkeypatch, is_inspecting):
    """A waiting caller would otherwise wait for ever."""
    heard: list[tuple[Any, ...]] = []
    hang = Hang()
    monkeypatch.setattr(supervisor, "_inspected", hang)
    supervisor.assigned({0})
    supervisor.retry(0, ends(heard))
    if is_inspecting:
        await hang.called.wait()
    MADE[0].over.set()
    await supervisor.stop(last_snapshot=False, deadline_seconds=5.0)
    assert heard == [("failed", None, "the process has stopped")]


async def test_nothing_starts_after_stop(supervisor):
    """A rebalance while the last snapshots are written: no second life begins, which would never end."""
    supervisor.assigned({0})
    stopping = asyncio.create_task(supervisor.stop(last_snapshot=True, deadline_seconds=5.0))
    await asyncio.sleep(0)
    supervisor.assigned({0, 1})
    MADE[0].over.set()
    await stopping
    supervisor.assigned({1})
    assert len(MADE) == 1


async def test_who_cannot_look_before_a_release_says_so_once(supervisor, monkeypatch, caplog):
    """It looks every second until the cluster answers."""
    answers = [Unreachable("no broker")] * 3

    async def ids(names):
        if answers:
            raise answers.pop()
        return await topic_ids(names)

    monkeypatch.setattr(CLUSTER, "topic_ids", ids)
    await released(supervisor)
    assert answers == []
    said = [each for each in caplog.messages if "not released yet" in each]
    assert said == ["partitions are not released yet: no broker"]


# ---- what a runner owes the supervisor ---------------------------------------------------------


async def test_a_recovery_is_woken_when_a_topic_appears_and_not_each_second(bench, monkeypatch):
    """Else no back-off would last while it waits for something else."""
    recovering, woken = [], []

    async def recover(_, interrupted):
        recovering.append(True)
        await interrupted.wait()

    monkeypatch.setattr(RecoveryDriver, "recover_unless", recover)
    monkeypatch.setattr(RecoveryDriver, "wake", lambda _: woken.append(True))
    one = await bench.owner()
    await until(lambda: recovering, "a recovery")
    ids = dict.fromkeys((bench.input, bench.increments), "A")
    for seen in (ids, *[{bench.increments: "A"}] * 3):
        one.runner.topics_seen(seen)
    assert woken == []
    for _ in range(3):
        one.runner.topics_seen(ids)
    assert len(woken) == 1


async def test_a_runner_that_died_is_failed_and_no_retry_waits_for_it(bench, caplog):
    """The status and the log name the defect."""
    error, heard = ZeroDivisionError("a defect"), list[Any]()
    one = await bench.owner()
    await one.end()
    one.runner.died(error)
    assert (one.status.phase, one.status.error.kind) == ("failed", "ZeroDivisionError")
    assert one.failures == [error]
    assert "ZeroDivisionError: a defect" in caplog.text
    one.runner.retry(None, ends(heard))
    assert heard[0][0] == "failed"


def ends_with(monkeypatch, error):
    """Let every incarnation end at once."""

    async def ended(_):
        return Ended(error)

    monkeypatch.setattr(Incarnation, "run", ended)


async def test_a_defect_in_what_follows_an_end_fails_the_partition(bench, monkeypatch):
    """It waits for a retry, as after every other defect."""

    async def broken(*_):
        raise ZeroDivisionError("a defect")

    ends_with(monkeypatch, Unreachable("no broker"))
    monkeypatch.setattr(runner_module, "within", broken)
    one = await bench.owner()
    assert (await one.phase("failed")).error.kind == "ZeroDivisionError"


async def test_a_defect_while_it_fails_is_survived_once(bench, monkeypatch):
    """What it holds is held on; the second defect in a row ends it, or it would go round for ever."""
    defects, asked = [ZeroDivisionError("first")], RetryRequest.until_asked

    async def broken(*waits):
        if defects:
            raise defects.pop(0)
        return await asked(*waits)

    ends_with(monkeypatch, StopError("a person must act"))
    monkeypatch.setattr(RetryRequest, "until_asked", broken)
    one = await bench.owner()
    await until(lambda: one.status.error and one.status.error.kind == "ZeroDivisionError", "the defect")
    await one.end()
    defects += [ZeroDivisionError("first"), ZeroDivisionError("second")]
    await bench.owner("two")
    with pytest.raises(ZeroDivisionError, match="second"):
        await bench.owners.pop().task


async def test_a_holder_that_waits_for_the_log_continues_when_it_is_taken_back(bench, monkeypatch):
    """It holds nothing any more, and a retry is answered by what it is: FAILED."""
    waiting, heard = list[Any](), list[Any]()

    async def answer(found, *_):
        await asyncio.sleep(0.1)
        return found

    async def until_proven(*_):
        waiting.append(True)
        await asyncio.Event().wait()

    ends_with(monkeypatch, StopError("a person must act"))
    one = await bench.owner()
    await one.phase("failed")
    with monkeypatch.context() as held:
        for name, found in (("is_proven", False), ("is_to_be_written", True)):
            held.setattr(Memory, name, partial(answer, found))
        held.setattr(Memory, "until_proven", until_proven)
        one.runner.stop(last_snapshot=False)
        await until(lambda: waiting, "it holds its state")
        assert one.runner.take_back()
    assert not one.runner.is_asked_to_end
    one.runner.retry(one.context.view, ends(heard))
    await until(lambda: heard, "an answer")
    assert (heard[0][0], one.status.phase) == ("failed", "failed")
