"""A runner that waits for an operator's word."""

import asyncio

from snapreplay.errors import StopError
from snapreplay.service.control.protocol import OperationState
from snapreplay.service.partition.retry import RetryRequest


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
    retry, heard = RetryRequest(), []
    retry.answer(OperationState.SUCCEEDED)
    retry.ask(StopError("still broken"), lambda *told: heard.append(told))
    assert retry.under_way
    retry.answer(OperationState.FAILED, "again")
    retry.succeeded()
    assert not retry.under_way
    assert heard == [("failed", None, "again")]
