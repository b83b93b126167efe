"""Tests of what the supervisor owes its runners, those that have not ended yet among them. Without a broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service import supervisor as module
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.outcomes import Ended, Interrupted
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.partition.incarnation import Incarnation
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.supervisor import Supervisor
from snapreplay.service.topics.requirements import MissingInput
from tests.docs.ownerships import BEGINNING
from tests.support import apps
from tests.support.stage import until


class Runner:
    """Runs until told; whether it then holds its state, and whether it is taken back, the test says."""

    def __init__(self, context: Any, *_: object) -> None:
        self.number, self.holding, self.unsaved = context.partition, False, None
        self.over, self.stops = asyncio.Event(), 0
        self.ids: list[dict[str, str]] = []
        self.deaths: list[BaseException] = []
        self.refusals: list[Exception] = []
        self.retried: list[Any] = []
        self.error: Exception | None = None
        MADE.append(self)

    async def run(self) -> None:
        await self.over.wait()
        if self.error is not None:
            raise self.error

    def stop(self, *, final_snapshot: bool) -> None:
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

    def limits_seen(self, limits: Any) -> None: ...

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


A_VIEW = SimpleNamespace(output_limits={})


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
async def supervisor(monkeypatch):
    """Provide a supervisor of runners that do nothing; stop it at the end."""
    MADE.clear()
    monkeypatch.setattr(module, "PartitionRunner", Runner)
    monkeypatch.setattr(module, "TOPIC_WATCH_SECONDS", 0.01)
    settings = Settings(kafka={"bootstrap.servers": "127.0.0.1:1"}, timeouts={"revoke_ms": 100})
    cluster: Any = SimpleNamespace(
        topic_watch=Watch, topic_ids=topic_ids, offset_committer=lambda _: Watch()
    )
    nothing: Any = None
    made = Supervisor(
        apps.ledger("held"), settings, cluster, nothing, nothing, StatusBoard(), lambda _: None
    )
    yield made
    for runner in MADE:
        runner.over.set()
    await made.stop(final_snapshot=False, deadline_seconds=5.0)


async def released(supervisor, number=0):
    """The partition was ours, and is another process's now."""
    supervisor.assigned({number})
    runner = MADE[-1]
    runner.holding = True
    supervisor.assigned(set())
    await until(lambda: runner.stops, "the release")
    return runner


async def test_a_holder_whose_partition_came_back_is_told_of_at_the_end(supervisor, monkeypatch):
    """Its loss is not hidden by the runner behind it, and the watch over the topics reaches it until it ends."""
    first = await released(supervisor)
    monkeypatch.setattr(Runner, "take_back", lambda _: False)
    supervisor.assigned({0})
    first.unsaved = StopError("the state is lost")
    stopping = asyncio.create_task(supervisor.stop(final_snapshot=False, deadline_seconds=0.3))
    seen = len(first.ids)
    await until(lambda: len(first.ids) > seen + 2, "the watch")
    await stopping
    assert supervisor.unsaved == [first.unsaved]


async def test_a_holder_that_a_defect_has_ended_is_told_of_at_the_end(supervisor):
    """Nobody holds its state any more: the exit code must show it."""
    first = await released(supervisor)
    first.unsaved, first.error = StopError("the state is lost"), ZeroDivisionError("a defect")
    first.over.set()
    await until(lambda: first.deaths, "the defect")
    await supervisor.stop(final_snapshot=False, deadline_seconds=5.0)
    assert supervisor.unsaved == [first.unsaved]


async def test_a_holder_takes_its_partition_back(supervisor):
    """No second runner hides what keeps it; the deadline of its release does not end it any more."""
    first = await released(supervisor)
    supervisor.assigned({0})
    assert len(MADE) == 1
    assert dict(supervisor.runners) == {0: first}
    await asyncio.sleep(0.2)  # what must not happen has no condition
    assert not first.over.is_set()
    assert dict(supervisor.runners) == {0: first}
    supervisor.assigned(set())
    await until(lambda: first.stops == 2, "another release")


async def test_a_runner_that_ends_with_a_defect_is_told(supervisor):
    """Nobody else would look at its task before the process ends."""
    supervisor.assigned({0})
    MADE[0].error = ZeroDivisionError("a defect")
    MADE[0].over.set()
    await until(lambda: MADE[0].deaths, "the defect")
    assert MADE[0].deaths == [MADE[0].error]


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
async def test_a_look_that_refuses_nobody_is_followed_by_another(looks, supervisor, caplog, error):
    """A missing input is its partitions' business, which wait for it; a defect is logged."""
    supervisor.assigned({0})
    looks.found = error
    await looks.two_more()
    assert not MADE[0].refusals
    assert ("failed, and goes on" in caplog.text) is isinstance(error, ZeroDivisionError)


async def test_a_runner_that_cannot_be_told_does_not_end_the_watch(looks, supervisor):
    """What it raises is logged, and the next look tells it again."""
    supervisor.assigned({0})
    vars(MADE[0]).update(limits_seen=lambda _: 1 / 0, refuse=lambda _: 1 / 0)
    for looks.found in (A_VIEW, StopError("one more")):
        await looks.two_more()


@pytest.mark.parametrize("error", [Unreachable("no broker"), ZeroDivisionError("a defect")])
async def test_a_retry_that_cannot_look_at_the_cluster_ends(looks, supervisor, error):
    """With the reason, and the next one may do better."""
    heard: list[tuple[Any, ...]] = []
    supervisor.assigned({0})
    looks.found = error
    supervisor.retry(0, lambda *told: heard.append(told))
    await until(lambda: heard, "an answer")
    assert (heard[0][0], str(error) in heard[0][2], MADE[0].retried) == ("failed", True, [])
    looks.found = A_VIEW
    supervisor.retry(0, lambda *told: heard.append(told))
    await until(lambda: MADE[0].retried == [A_VIEW], "the retry")
    supervisor.retry(1, lambda *told: heard.append(told))
    assert heard[1:] == [("failed", None, "this process does not own the partition any more")]


async def test_nothing_starts_after_stop(supervisor):
    """A rebalance while the last snapshots are written: no second life begins, which nobody would end."""
    supervisor.assigned({0})
    stopping = asyncio.create_task(supervisor.stop(final_snapshot=True, deadline_seconds=5.0))
    await asyncio.sleep(0)
    supervisor.assigned({0, 1})
    MADE[0].over.set()
    await stopping
    supervisor.assigned({1})
    assert len(MADE) == 1


async def test_who_cannot_look_before_a_release_says_so_once(supervisor, monkeypatch, caplog):
    """It looks every second until the cluster answers."""
    answers = [Unreachable("no broker")] * 3

    async def ids(_):
        if answers:
            raise answers.pop()
        return {}

    monkeypatch.setattr(supervisor, "_cluster", SimpleNamespace(topic_ids=ids))
    await supervisor._shrink(set())
    assert answers == []
    said = [each for each in caplog.messages if "not released yet" in each]
    assert said == ["partitions are not released yet: no broker"]


def runner_of(partition=0):
    """One that never runs, its board, and what it told."""
    settings = Settings(kafka={"bootstrap.servers": "127.0.0.1:1"})
    board = StatusBoard()
    told: list[BaseException] = []
    context: Any = SimpleNamespace(
        app=apps.ledger("held"),
        settings=settings,
        partition=partition,
        identity=SimpleNamespace(process_id="p"),
        expected=BEGINNING.expected,
        increments=SimpleNamespace(topic="log"),
        snapshots=SimpleNamespace(topic="snaps"),
        input_names=("in",),
        metrics=SimpleNamespace(failed=lambda *_: None, fenced=lambda: None),
        view=SimpleNamespace(output_limits={}),
    )
    runner: Any = PartitionRunner(context, board, told.append)
    return runner, board, told


async def test_a_recovery_is_woken_when_a_topic_appears_and_not_each_second():
    """Else no back-off would last while it waits for something else."""
    runner, _, _ = runner_of()
    woken = []
    runner._incarnation._driver = SimpleNamespace(wake=lambda: woken.append(1))
    for ids in ({"log": "A", "in": "B"}, {"log": "A"}, {"log": "A"}, {"log": "A"}):
        runner.topics_seen(ids)
    assert woken == []
    for _ in range(3):
        runner.topics_seen({"log": "A", "in": "C"})
    assert woken == [1]


async def test_a_runner_that_died_is_failed_and_no_retry_waits_for_it(caplog):
    """The status and the log name the defect."""
    runner, board, told = runner_of()
    error, heard = ZeroDivisionError("a defect"), []
    runner._reporter.phase(Phase.CLOSED)
    runner.died(error)
    status = board.get(0)
    assert (status.phase, status.error.kind) == (Phase.FAILED, "ZeroDivisionError")
    assert told == [error]
    assert "ZeroDivisionError: a defect" in caplog.text
    runner.retry(None, lambda *answer: heard.append(answer))
    assert heard[0][0] == "failed"


async def test_a_defect_in_what_follows_an_end_fails_the_partition(monkeypatch):
    """It waits for a retry, as after every other defect."""
    runner, board, _ = runner_of()

    async def ended():
        return Ended(Unreachable("no broker"))

    async def broken(_):
        raise ZeroDivisionError("a defect")

    async def forgotten():
        return None

    monkeypatch.setattr(Incarnation, "run", lambda _: ended())
    monkeypatch.setattr(runner, "_pause", broken)
    monkeypatch.setattr(runner._memory, "forget_if_proven", forgotten)
    runner._lifecycle.stopped.set()
    await runner._one()
    assert board.get(0).phase == Phase.FAILED
    assert board.get(0).error.kind == "ZeroDivisionError"


async def test_a_defect_while_it_fails_is_survived_once(monkeypatch):
    """What it holds is held on; the second defect in a row ends it, or it would go round for ever."""
    runner, board, _ = runner_of()
    defects = [ZeroDivisionError("first"), ZeroDivisionError("second")]

    async def ended():
        return Ended(StopError("a person must act"))

    async def broken(_):
        if defects:
            raise defects.pop(0)
        return Interrupted()

    monkeypatch.setattr(Incarnation, "run", lambda _: ended())
    monkeypatch.setattr(runner, "_until_retried", broken)
    defects.pop()
    await runner._one()
    assert board.get(0).error.kind == "ZeroDivisionError"
    defects += [ZeroDivisionError("first"), ZeroDivisionError("second")]
    with pytest.raises(ZeroDivisionError, match="second"):
        await runner._one()


async def test_a_cluster_that_is_refused_outlives_the_process_of_our_name():
    """Else the partition went on with the old view of it when that process has gone."""
    runner, _, _ = runner_of()
    more = StopError("partitions were added")
    runner.refuse(DuplicateInstance("another"))
    runner.refuse(more)
    runner.refuse(DuplicateInstance("another"))
    assert runner._ownership.refused is more


async def test_a_holder_that_waits_for_the_log_goes_on_when_it_is_taken_back(monkeypatch):
    """It holds nothing any more, and a retry is answered by what it is: FAILED."""
    runner, _, _ = runner_of()
    never = asyncio.Event()
    monkeypatch.setattr(runner._memory, "until_proven", lambda *_: never.wait())
    runner.stop(final_snapshot=False)
    runner._lifecycle.update(is_holding=True)
    waiting = asyncio.create_task(runner._until_proven_if_held())
    await asyncio.sleep(0)
    assert runner.take_back()
    await asyncio.wait_for(waiting, 5)
    assert not runner._ownership.is_holding
    assert not runner._lifecycle.stopped.is_set()
