"""The HTTP process's end of its line to the service."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from itertools import islice

import pytest

from snapreplay.api import line, link
from snapreplay.api.answering import Answers
from snapreplay.api.line import LOG_LINES_PER_SECOND, Line
from snapreplay.api.link import COMMANDS_MAX, ServiceLink
from snapreplay.service.control.framing import early, messages
from snapreplay.service.control.protocol import Retry, Silent, TooManyCommands
from snapreplay.service.runtime.tasks import cancel_and_wait
from tests.support.deadlines import within
from tests.support.fake_control import FakeControl


@pytest.mark.parametrize("in_good_order", [True, False])
async def test_a_service_that_has_hung_up_is_told_from_one_that_died(in_good_order):
    """Both end the line. One that ends in good order listens on until its HTTP process has ended; of one that was
    killed nothing is left, and no bye may be said in its name."""
    service, ours = socket.socketpair()
    ends = Line(*await asyncio.open_connection(sock=ours))
    assert not ends.has_hung_up
    if in_good_order:
        service.shutdown(socket.SHUT_WR)
    else:
        service.close()
    async with within(10):
        await ends.run()
    assert ends.has_hung_up is in_good_order
    service.close()
    ends._writer.close()


async def test_who_did_what_is_told_whatever_else_is_logged(monkeypatch):
    """Refusals cost nothing, and a crowd of them must not hide what was done. What is left out is counted."""
    monkeypatch.setattr(line, "boot_seconds", lambda: 1.0)
    service, ours = socket.socketpair()
    told = Line(*await asyncio.open_connection(sock=ours))
    refused, done = (
        logging.makeLogRecord({"name": "snapreplay.http", "levelno": level})
        for level in (logging.WARNING, logging.INFO)
    )
    for _ in range(LOG_LINES_PER_SECOND + 7):
        told.log(refused, "refused")
    told.log(done, "ada (admin): DELETE")
    monkeypatch.setattr(line, "boot_seconds", lambda: 2.0)
    told.log(refused, "refused")
    told._writer.close()
    await told._writer.wait_closed()
    texts = [early(each).message for each in messages(service)]
    expected = [
        *["refused"] * LOG_LINES_PER_SECOND,
        "ada (admin): DELETE",
        "7 lines left out: too many a second",
        "refused",
    ]
    assert texts == expected
    service.close()


@pytest.mark.parametrize("answered", [True, False])
async def test_an_answer_that_came_while_this_process_stood_still_counts(monkeypatch, answered):
    """Its time is over when this process runs again. What was done is not told as perhaps undone, and a service that
    has answered is not silent; one that has not is."""
    for module in (line, link):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    service, ours = socket.socketpair()
    ends = Line(*await asyncio.open_connection(sock=ours))
    asking, answers = ServiceLink(ends), Answers(FakeControl())
    running = asyncio.create_task(ends.run())
    performed, looked = asyncio.create_task(asking.perform(Retry(2))), asyncio.create_task(asking.look())
    while ends.waiting < 2:  # noqa: ASYNC110 - it is asked in the next turns of this loop
        await asyncio.sleep(0)
    asked = messages(service)
    for question in islice(asked, 2):
        service.sendall(answers.to(question) if answered else b"")
    time.sleep(0.2)  # noqa: ASYNC251 - it stands still
    (told,) = await asyncio.gather(performed, return_exceptions=True)
    if answered:  # what the first answer says is old by now
        service.sendall(answers.to(await asyncio.to_thread(next, asked)))
    assert (isinstance(told, Silent), (await looked).document is None) == (not answered, not answered)
    ends._writer.close()
    await running
    assert not [*asked]
    service.close()
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        await cancel_and_wait(each)


async def test_commands_that_come_all_at_once_are_counted_all(monkeypatch):
    """As after a standstill of this process. A frozen service would carry out each of them later."""
    for module in (line, link):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    service, ours = socket.socketpair()
    ends = Line(*await asyncio.open_connection(sock=ours))
    asking = ServiceLink(ends)
    told = await asyncio.gather(*(asking.perform(Retry(2)) for _ in range(COMMANDS_MAX + 3)), return_exceptions=True)
    assert [type(each) for each in told] == [*[Silent] * COMMANDS_MAX, *[TooManyCommands] * 3]
    ends._writer.close()
    service.close()
