"""A question beside the processing: one at a time, and only a younger process of our name is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.partition import suspicion as module
from snapreplay.service.partition.suspicion import Suspicion
from tests.service.core.test_refusals import EXPECTED, claim

CONTEXT: Any = SimpleNamespace(partition=0, expected=EXPECTED)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, 0),
        (claim(instance_id="another"), 0),
        (claim(), 1),
        (Unreachable("nobody there"), 0),
    ],
)
async def test_only_a_younger_process_of_our_name_is_told(monkeypatch, answer, told):
    """No claim, somebody else's and no answer change nothing."""

    async def newer(*_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    heard: list[Any] = []
    monkeypatch.setattr(module, "newer_owner", newer)
    suspicion = Suspicion(CONTEXT, heard.append)
    suspicion.ask(7)
    assert suspicion._asking is not None
    await suspicion._asking
    assert [type(each) for each in heard] == [DuplicateInstance] * told
    await suspicion.end()


async def test_one_question_at_a_time(monkeypatch):
    """The log is slow; what is asked meanwhile is asked already. At the end nothing is left."""
    asked: list[int] = []

    async def newer(_, owner_epoch):
        asked.append(owner_epoch)
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "newer_owner", newer)
    suspicion = Suspicion(CONTEXT, lambda _: None)
    suspicion.ask(None)
    assert asked == []
    for _ in range(3):
        suspicion.ask(7)
        await asyncio.sleep(0)
    assert asked == [7]
    await suspicion.end()
    assert suspicion._asking is not None
    assert suspicion._asking.done()
