"""The HTTP process's end of its line to the service."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from snapreplay.api import line
from snapreplay.api.line import LOG_LINES_PER_SECOND, Line
from snapreplay.service.control.framing import early, messages
from tests.support.deadlines import within


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
