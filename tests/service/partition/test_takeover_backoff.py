"""Tests of how long one stands back when another process has claimed the partition."""

import asyncio
from types import SimpleNamespace
from typing import Any

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition.takeover_backoff import TakeoverBackoff
from snapreplay.service.runtime.context import Identity
from tests.support.in_memory import virtual
from tests.support.stage import until


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
