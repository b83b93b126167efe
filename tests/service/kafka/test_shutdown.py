"""Ending clients in bounded time."""

import asyncio
import gc

import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.connection import Connection
from snapreplay.service.kafka.reader import KafkaReader
from tests.support.kafka import Since
from tests.support.stage import until


@pytest.mark.parametrize("at", ["ApiVersionRequest", "Leaders"])
@pytest.mark.parametrize("what", ["reader", "fence"])
async def test_a_start_that_is_cancelled_leaves_no_connection(cluster, settings, unique, what, at, monkeypatch):
    """Cancelled while it waits for its first answers."""
    send, asked = Connection.send, []

    def interrupted(self, request, *kept):
        asked.append(type(request).__name__)
        if asked[-1] == at and asked.count(at) == 1:
            asyncio.get_running_loop().call_soon(task.cancel)
        return send(self, request, *kept)

    monkeypatch.setattr(Connection, "send", interrupted)
    since = Since(settings.bootstrap_servers[0])
    arguments = (unique("fence"),) if what == "fence" else ()
    task = asyncio.create_task(getattr(cluster, what)(*arguments))
    await asyncio.wait({task})
    assert task.cancelled()
    gc.collect()
    await until(lambda: not since.sockets)
    assert not since.tasks


@pytest.mark.parametrize("turns", [0, 2])
async def test_a_close_that_is_cancelled_leaves_no_client(settings, turns):
    """Whoever closes is cut off after so many turns of the loop: the client ends all the same."""
    since = Since(settings.bootstrap_servers[0])
    reader = KafkaReader(settings, read_committed=True, large=False)
    await reader.start()
    close = asyncio.create_task(reader.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    close.cancel()
    await asyncio.wait({close})
    if turns == 0:  # cut off before its first step: it is still to be closed
        await reader.close()
    await until(lambda: not since.sockets)
    assert not since.tasks


async def test_a_reader_closed_while_it_connects_leaves_no_client(settings):
    """Two tasks: one connects, the other one closes; there was nothing to close yet."""
    since = Since(settings.bootstrap_servers[0])
    reader = KafkaReader(settings, read_committed=True, large=False)
    start = asyncio.create_task(reader.start())
    await asyncio.sleep(0)
    await reader.close()
    with pytest.raises(Unreachable, match="closed"):
        await start
    await until(lambda: not since.sockets)
