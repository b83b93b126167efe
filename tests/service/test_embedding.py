"""Tests of what a program that runs a service asks it for: views, and news of failures."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.errors import NotLive, PartitionNotLive, ServiceClosed, SnapreplayError, UnknownPartition, UsageError
from snapreplay.service.control.state_reads import AnsweredBy, NotReadable, Readable
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.phase import Phase
from snapreplay.service.embedding import FailureNews, Views, reached
from snapreplay.service.runtime.context import ClusterView
from snapreplay.state.view import Position
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.stage import phase


def runner(state=None):
    """LIVE with this state, or on its way."""
    live = None if state is None else SimpleNamespace(committed_view=lambda: state)
    found = readable(live, AnsweredBy.OWNER) if live else None
    return SimpleNamespace(store=live, readable=found, phase=Phase.LIVE if live else Phase.LOADING)


def readable(store, role, age_seconds=0.0):
    last: Any = SimpleNamespace(batch=7, positions={"payments": 9})
    return Readable(store, last, role, 4, age_seconds)


@pytest.fixture
def runners():
    return {2: runner({"b": 2}), 0: runner({"a": 1}), 1: runner()}


@pytest.fixture
def views(runners):
    """Partitions 0 and 2 are LIVE, 1 is on its way, 3 is another process's."""
    made = Views(lambda: 4)
    made.open(lambda: runners)
    return made


def test_a_view_follows_its_partition(views, runners):
    """It may be kept: it shows what is committed now, and says so when there is nothing to show."""
    view = views.view(0)
    assert dict(view) == {"a": 1}
    runners[0] = runner({"a": 2})
    assert (view["a"], len(view), "a" in view) == (2, 1, True)
    runners[0] = runner()
    with pytest.raises(PartitionNotLive, match="partition 0 is not LIVE here: it is loading"):
        view.get("a")
    views.close()
    with pytest.raises(ServiceClosed, match="was stopped"):
        view.get("a")


def test_views_are_of_what_is_live(views):
    """By number, without those on their way."""
    assert {number: dict(view) for number, view in views.views().items()} == {0: {"a": 1}, 2: {"b": 2}}


def test_a_warm_copy_is_shown_to_who_takes_it(views, runners):
    """Where the partition is not LIVE here; it says how far it is, and how old. While it is loaded there is none."""
    copy = SimpleNamespace(committed_view=lambda: {"c": 3})
    copies = {3: readable(copy, AnsweredBy.STANDBY, 0.4), 0: readable(copy, AnsweredBy.STANDBY)}
    standbys: Any = SimpleNamespace(readable=copies.get)
    views.open(lambda: runners, lambda: standbys)
    with pytest.raises(PartitionNotLive):
        views.view(3)
    view = views.view(3, stale=True)
    assert (dict(view), view.position) == ({"c": 3}, Position(7, {"payments": 9}, True, 0.4))
    own = views.view(0, stale=True)
    assert (dict(own), own.position) == ({"a": 1}, Position(7, {"payments": 9}, False, 0.0))

    def loading(number):
        raise NotReadable(number, "loading", "its warm copy here is being loaded")

    standbys.readable = loading
    with pytest.raises(PartitionNotLive, match="its warm copy here is being loaded"):
        view["c"]


@pytest.mark.parametrize(
    ("partition", "kind", "said"),
    [
        (1, PartitionNotLive, "it is loading"),
        (3, PartitionNotLive, "another process owns it, or none does yet"),
        (4, UnknownPartition, "partition 4 does not exist: there are 4, from 0"),
        (-1, UnknownPartition, "partition -1 does not exist"),
        ("0", UnknownPartition, "partition '0' does not exist: there are 4, from 0"),
    ],
)
def test_what_cannot_be_viewed_is_named(views, partition, kind, said):
    """Instead of a bare KeyError."""
    with pytest.raises(kind, match=said):
        views.view(partition)


async def test_another_thread_is_refused(views):
    """A plain `def` of a web framework runs in one: it would read a map while that changes."""
    view = views.view(0)
    with pytest.raises(UsageError, match="another one"):
        await asyncio.to_thread(view.get, "a")


async def tell(partition, error): ...


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (tell, r"on_failed\(tell\): it is a coroutine function, which would never be awaited"),
        (partial(tell), "never be awaited"),
        (None, "cannot be called"),
    ],
)
def test_what_would_lose_the_news_is_no_callback(callback, said):
    """A coroutine function, or nothing to call: refused at once, not when a partition fails."""
    with pytest.raises(UsageError, match=said):
        FailureNews().add(callback)


def test_a_coroutine_that_a_callback_returns_is_reported(caplog):
    """A lambda around an `async def`: it cannot be seen before."""
    news, heard = FailureNews(), []
    news.add(lambda _, error: tell(1, error))  # type: ignore[arg-type] # refused, see above
    news.add(lambda *given: heard.append(given))
    error = RuntimeError("no")
    news.tell(1, error)
    assert heard == [(1, error)]
    assert "it returned a coroutine, which is never awaited" in caplog.text


async def test_an_unreachable_cluster_is_a_warning_each_time_and_its_remedy_once(caplog, monkeypatch):
    monkeypatch.setattr("snapreplay.service.embedding.RETRY_SECONDS_MIN", 0.0)
    errors = [Unreachable("no answer"), Unreachable("no answer"), Unreachable("no coordinator", hint="wait")]
    left, reported, view = [*errors], list[SnapreplayError](), ClusterView("id", 1, {}, 60_000)

    async def begin() -> ClusterView:
        if left:
            raise left.pop(0)
        return view

    assert await reached(begin, reported.append) is view
    assert reported == errors
    remedies = ["no answer (check that the cluster is up", "no answer", "no coordinator (wait)"]
    said = [each.message.partition(" s: ")[2].partition(", and that kafka.bootstrap")[0] for each in caplog.records]
    assert said == remedies


async def test_a_program_hears_of_each_partition_that_fails(stage, unique, caplog):
    """Partition and error, in its loop; what the callback raises is logged, and the next one is called all the same."""
    here = await stage(apps.ledger(unique("heard")), partitions=2)
    heard = []
    async with here.running() as service:
        service.on_failed(lambda partition, error: 1 / 0)
        service.on_failed(lambda *news: heard.append((*news, asyncio.get_running_loop())))
        await here.send([("1:a", {"amout": 1})])
        await phase(service, "failed", 1)
        with pytest.raises(NotLive, match="a partition FAILED"):
            await service.wait_caught_up(scaled(10))
        with pytest.raises(PartitionNotLive, match="partition 1 is not LIVE here: it is failed"):
            service.view(1)
        assert list(service.views()) == [0]
    ((partition, error, loop),) = heard
    assert (partition, type(error).__name__) == (1, "HandlerFailed")
    assert loop is asyncio.get_running_loop()
    assert [r.message for r in caplog.records].count("partition 1 FAILED, and the callback of on_failed raised") == 1
