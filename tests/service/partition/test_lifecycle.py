"""Tests of when nothing is waited for any more, and which refusal counts."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service.control.operations import OperationState
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.partition.lifecycle import Lifecycle, RetryRequest, TakeoverBackoff
from snapreplay.service.runtime.context import Identity
from tests.service.core.test_refusals import EXPECTED
from tests.support.in_memory import virtual
from tests.support.owner import ends
from tests.support.stage import settings_for, until

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
    """And none to nobody."""
    retry, heard = RetryRequest(), list[Any]()
    retry.answer(OperationState.SUCCEEDED)
    retry.ask(StopError("still broken"), ends(heard))
    assert retry.under_way
    retry.answer(OperationState.FAILED, "again")
    retry.succeeded()
    assert not retry.under_way
    assert heard == [("failed", None, "again")]


async def test_a_retry_that_was_cancelled_does_not_begin():
    """Whoever asked hears nothing more; the next one does."""
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
    """Another's, a rebalance (nobody's) and no answer are all no; pauses grow from one question to the next."""
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
    """Whoever is stopped takes nothing back."""
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
