"""What HTTP asks of the runners' loop: while a handler keeps it, and while a batch is awaited."""

import asyncio
import itertools
import threading
import time
from collections import Counter

import httpx2
import msgspec
import pytest

from snapreplay.api import views
from snapreplay.api.asking import WAITING_MAX, Asking
from snapreplay.api.json_values import shown_value
from snapreplay.service.control.kafka_reads import KeyChange
from snapreplay.service.control.operations import TriggerSnapshot
from snapreplay.service.control.protocol import TooManyCommands
from snapreplay.service.control.state_reads import (
    AnsweredBy,
    BatchUnderWay,
    PartRead,
    ReadAt,
    ReadKey,
    ReadLate,
    StateAnswer,
)
from tests.support.deadlines import scaled
from tests.support.fake_control import NO_CHANGES, NOW, FakeControl
from tests.support.in_memory import virtual
from tests.support.served import served
from tests.support.stage import until

AT = ReadAt(0, 60, {"payments": 500}, 130, AnsweredBy.OWNER, 0.0, "", "p1", "host-a")
CHANGE = KeyChange(60, 130, NOW, 130, (), b"\x05")
ANSWER = StateAnswer((PartRead(AT, (("ada", b"\x05"),)),), (), 1)


@pytest.fixture
async def control():
    made = FakeControl()
    made.reading = lambda _: ANSWER
    return made


def asked(url, path="/api/v1/state/default/ada?partition=0"):
    with httpx2.Client(base_url=url, trust_env=False, timeout=scaled(20)) as client:
        return client.get(path)


def as_it_is(answer):
    return answer


def post(url):
    return httpx2.post(f"{url}/trigger-snapshot", json={}, trust_env=False, timeout=scaled(20))


async def test_a_handler_that_keeps_the_loop_delays_reads_and_commands_and_nothing_else(control):
    """Probes and statuses are answered. A read and a command are given up with the reason, and nothing of them is done
    later. When the loop turns again, both are answered."""
    wanted = {
        "/healthz": asked,
        "/restore-status": asked,
        "/metrics": asked,
        "/api/v1/state/default/ada?partition=0": asked,
        "": lambda url, _: post(url),
    }
    answers: dict[str, httpx2.Response] = {}

    def ask(path):
        answers[path] = wanted[path](url, path)

    async with served(control) as url:
        assert (await asyncio.to_thread(asked, url)).json()["items"][0]["value"] == 5
        threads = [threading.Thread(target=ask, args=(path,)) for path in wanted]
        for each in threads:
            each.start()
        blocked_until = time.monotonic() + scaled(30)
        while len(answers) < len(wanted) and time.monotonic() < blocked_until:
            time.sleep(0.02)  # noqa: ASYNC251 - it is the handler that blocks the loop
        assert [answers[path].status_code for path in wanted] == [200, 200, 200, 503, 503]
        kinds = {path: str(answers[path].json()["type"]).rpartition(":")[2] for path in list(wanted)[3:]}
        assert list(kinds.values()) == ["read-late", "loop-blocked"]
        assert "nothing was started" in answers[""].json()["detail"]
        reads = len(control.reads)
        assert (await asyncio.to_thread(asked, url)).status_code == 200
        assert (len(control.reads), control.operations()) == (reads + 1, [])
        assert (await asyncio.to_thread(post, url)).status_code == 202
    assert len(control.operations()) == 1


async def test_a_copy_is_read_after_the_batch_that_it_applies_or_refused(control):
    """The answer comes when the batch is whole, at the second look; other reads are answered meanwhile."""
    looks = Counter[str]()

    def read(wanted):
        looks[wanted.key] += 1
        if wanted.key == "never" or (wanted.key == "soon" and looks["soon"] == 1):
            raise BatchUnderWay(0)
        return ANSWER

    control.reading = read
    async with served(control) as url:
        waiting = asyncio.create_task(asyncio.to_thread(asked, url, "/api/v1/state/default/soon?partition=0"))
        refused = asyncio.create_task(asyncio.to_thread(asked, url, "/api/v1/state/default/never?partition=0"))
        await until(lambda: control.reads, "a read")
        assert (await asyncio.to_thread(asked, url)).status_code == 200
        assert (await waiting).status_code == 200
        document = (await refused).json()
        assert (document["status"], document["phase"]) == (503, "warm")


async def test_as_many_as_may_wait_do(control):
    """Commands and reads together; the next one is refused at once. When they have been answered, there is room."""

    def wait(_):
        raise BatchUnderWay(0)

    control.reading = wait
    asking = Asking(control, asyncio.get_running_loop())
    waiting = [asyncio.create_task(asking.read(ReadKey("default", "ada"), as_it_is)) for _ in range(WAITING_MAX)]
    await until(lambda: control.reads, "a read")
    for ask in (asking.read(ReadKey("default", "ada"), as_it_is), asking.perform(TriggerSnapshot(None, ""))):
        with pytest.raises(TooManyCommands):
            await ask
    control.reading = lambda _: ANSWER
    assert await asyncio.gather(*waiting) == [ANSWER] * WAITING_MAX
    assert await asking.read(ReadKey("default", "ada"), as_it_is) == ANSWER


async def test_probes_are_answered_while_an_answer_is_converted(control, monkeypatch):
    """However long it takes, for each route that shows values."""
    is_converting, may_end = threading.Event(), threading.Event()

    def shown(stored):
        is_converting.set()
        assert may_end.wait(scaled(20))
        return shown_value(stored)

    monkeypatch.setattr(views, "shown_value", shown)
    control.key_histories = lambda _: msgspec.structs.replace(NO_CHANGES, changes=(CHANGE,))
    paths = ["state/default?partition=0", "state/default/ada?partition=0", "state/default/ada?scope=local",
             "key-history/default/ada?partition=0"]  # fmt: skip
    async with served(control) as url:
        for path in paths:
            is_converting.clear()
            may_end.clear()
            page = asyncio.create_task(asyncio.to_thread(asked, url, f"/api/v1/{path}"))
            assert await asyncio.to_thread(is_converting.wait, scaled(20))
            try:
                assert (await asyncio.to_thread(asked, url, "/healthz")).status_code == 200
                assert not page.done()
            finally:
                may_end.set()
            assert (await page).status_code == 200


async def test_an_answer_that_cannot_be_converted_soon_is_refused(control):
    """One is converted at a time, and the next one when it has ended or failed."""
    is_converting, may_end = threading.Event(), threading.Event()
    asking = Asking(control, asyncio.get_running_loop())

    def slow(_):
        is_converting.set()
        return may_end.wait(scaled(20))

    first = asyncio.create_task(asking.read(ReadKey("default", "ada"), slow))
    assert await asyncio.to_thread(is_converting.wait, scaled(20))
    with pytest.raises(ReadLate):
        await asking.read(ReadKey("default", "ada"), as_it_is)
    may_end.set()
    assert await first
    with pytest.raises(ZeroDivisionError):
        await asking.read(ReadKey("default", "ada"), lambda _: 1 / 0)
    assert await asking.read(ReadKey("default", "ada"), as_it_is) == ANSWER


@virtual
async def test_a_read_in_which_garbage_was_collected_does_not_refuse_the_next(monkeypatch):
    """A collection may take tenths of a second, for which the share of the loop would be paid with seconds."""
    spent = itertools.count(0.0, 0.5)
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    control = FakeControl()
    control.reading = lambda _: ANSWER
    asking = Asking(control, asyncio.get_running_loop())
    for _ in range(2):
        await asking.read(ReadKey("default", "ada", 0), as_it_is)
