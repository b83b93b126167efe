"""Ends clients in bounded time, whatever they are doing, through their internals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection

log = logging.getLogger(__name__)

CLOSE_S = 2.0
_CANCEL_ROUNDS = 40
_ROUND_S = 0.05
_FINISH_S = 0.5


async def bounded(work: Coroutine[Any, Any, object], seconds: float) -> bool:
    """Run `work` in a task of its own; False when it had to be cancelled. Never raises its errors.

    In a task of its own, because `stop()` directly after `start()` raises a CancelledError of its own (aiokafka
    0.14.0), which must not look like ours.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not done:
        await asyncio.wait([task], timeout=_ROUND_S)
        return False
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("closing a Kafka client: %r", error)
    return True


async def finish_despite_cancel(work: Coroutine[Any, Any, object]) -> None:
    """Start or end a client. If it is cancelled meanwhile, it forgets an open connection and the task that reads it
    (aiokafka 0.14.0), so `work` may finish first, within half a second. After that the connection is closed here."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_FINISH_S)
        unknown = list(_connections(task.get_coro()))
        task.cancel()
        await asyncio.wait([task], timeout=_ROUND_S)
        for connection in unknown:
            connection.close()
        if task.done() and not task.cancelled():
            task.exception()  # looked at: nobody waits for it any more
        raise


def _connections(work: Any) -> Iterator[AIOKafkaConnection]:
    """Find the connections in the hands of a coroutine or what it awaits: nobody else knows of the first one."""
    while (frame := getattr(work, "cr_frame", None)) is not None:
        yield from (each for each in frame.f_locals.values() if isinstance(each, AIOKafkaConnection))
        work = work.cr_await


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop the consumer, then cut what is left. Bounded by about twice CLOSE_S, never raises."""
    await finish_despite_cancel(_close(consumer._client, consumer.stop))


async def close_client(client: AIOKafkaClient) -> None:
    """Close it within about twice CLOSE_S; never raises."""
    await finish_despite_cancel(_close(client, client.close))


async def _close(client: AIOKafkaClient, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """End it, and what `close` may leave behind.

    That cancels the metadata synchroniser, which can swallow it (seen under request timeouts on Python 3.11,
    whose `wait_for` does so), live on and connect again.
    """
    synchroniser = client._sync_task
    await asyncio.sleep(0)
    await bounded(close(), CLOSE_S)
    # A consumer's `stop` that cancels a fetch which has not begun ends with that cancellation, before its client.
    await bounded(client.close(), CLOSE_S)
    if synchroniser is not None:
        await _end({synchroniser})
    for connection in list(client._conns.values()):
        connection.close()


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel until they are done: the client swallows some cancellations."""
    left = {task for task in tasks if not task.done()}
    for _ in range(_CANCEL_ROUNDS):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=_ROUND_S)
    for task in tasks - left:
        if not task.cancelled():
            task.exception()
    if left:
        log.error("tasks of a closed Kafka client are still running: %r", left)
