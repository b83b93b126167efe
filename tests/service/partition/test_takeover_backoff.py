"""How long one stands back when another process has claimed the partition."""

import asyncio
from functools import partial
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.backoff import fenced_pause_seconds
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.partition import takeover_backoff as module
from snapreplay.service.partition.takeover_backoff import TakeoverBackoff
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from tests.support import apps
from tests.support.stage import until

pytestmark = pytest.mark.kafka


class Coordinator:
    """Gives these answers, the last one for ever; an error is no answer."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def was_asked(self, times):
        return self.asked == times

    async def is_assigned_to_us(self, partition):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that are asked for, in seconds; each takes a thousandth of it."""
    asked_for = []

    def shorter(*arguments):
        asked_for.append(fenced_pause_seconds(*arguments))
        return asked_for[-1] / 1000

    monkeypatch.setattr(module, "fenced_pause_seconds", shorter)
    return asked_for


def stands_back(group):
    """Of partition 0 of an app whose group is `group`."""
    identity = Identity.of_this_process("one")
    view = ClusterView("cluster", 1, {}, 900_000)
    cluster: Any = None  # nothing is asked of it
    app, settings = apps.ledger("app"), Settings()
    return TakeoverBackoff(
        Context(app, settings, cluster, view, identity, 0, asyncio.Semaphore(1), group)
    )


async def test_only_the_coordinators_word_ends_the_wait(pauses):
    """Another's, a rebalance (nobody's) and no answer are all no; pauses grow from one question to the next."""
    group = Coordinator(False, Unreachable("no coordinator"), False, True)
    await stands_back(group).until_given(1, asyncio.Event())
    assert group.asked == 4
    assert all(0.75 * 2**n <= pause <= 2**n for n, pause in enumerate(pauses))


async def test_a_new_assignment_ends_a_pause_but_not_the_wait(monkeypatch):
    """The coordinator is asked at once, and still decides."""
    monkeypatch.setattr(module, "fenced_pause_seconds", lambda *_: 3600.0)
    group = Coordinator(False, True)
    back = stands_back(group)
    waiting = asyncio.create_task(back.until_given(1, asyncio.Event()))
    for asked in (1, 2):
        await asyncio.sleep(0)  # the pause has begun
        back.on_reassigned()
        await until(partial(group.was_asked, asked), f"question {asked}")
    await asyncio.wait_for(waiting, 5)


async def test_a_stop_ends_the_wait_unasked(monkeypatch):
    """Whoever is stopped takes nothing back."""
    monkeypatch.setattr(module, "fenced_pause_seconds", lambda *_: 3600.0)
    group, stopped = Coordinator(True), asyncio.Event()
    waiting = asyncio.create_task(stands_back(group).until_given(1, stopped))
    await asyncio.sleep(0)  # the pause has begun
    stopped.set()
    await asyncio.wait_for(waiting, 5)
    assert group.asked == 0


async def test_without_a_group_the_log_alone_decides(pauses):
    """One pause, and back. It is longer when the partition was taken several times in a row."""
    await stands_back(None).until_given(2, asyncio.Event())
    assert len(pauses) == 1
    assert 1.5 <= pauses[0] <= 2
