"""The HTTP process's end of its line to the service."""

from __future__ import annotations

import asyncio
import socket

import pytest

from snapreplay.api.line import Line
from tests.support.deadlines import within


@pytest.mark.parametrize("in_good_order", [True, False])
async def test_a_service_that_has_hung_up_is_told_from_one_that_died(in_good_order):
    """Both end the line. One that ends in good order listens on until its HTTP process has ended; of one that was
    killed nothing is left, and no bye may be said in its name."""
    service, ours = socket.socketpair()
    line = Line(*await asyncio.open_connection(sock=ours))
    assert not line.has_hung_up
    if in_good_order:
        service.shutdown(socket.SHUT_WR)
    else:
        service.close()
    async with within(10):
        await line.run()
    assert line.has_hung_up is in_good_order
    service.close()
    line._writer.close()
