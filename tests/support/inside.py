"""The private parts of a service that tests look at, or break: they have their names here and nowhere else.

All of it is Any: a test that looks at what is not there fails, which is what it is for.
"""

from __future__ import annotations

from typing import Any


def supervisor(service: Any) -> Any:
    return service._supervisor


def runner(service: Any, partition: int = 0) -> Any:
    return service._supervisor.runners[partition]


def membership(service: Any) -> Any:
    return service._membership


def background(service: Any) -> Any:
    """Return the thread of its heartbeats and of HTTP."""
    return service._background


def live(runner: Any) -> Any:
    return runner._live


def committer(runner: Any) -> Any:
    return runner._live._committer


def producer(runner: Any) -> Any:
    """Return the one of the incarnation that is LIVE now."""
    return runner._live._committer._producer


def control(service: Any) -> Any:
    """Return more than `Service.control` promises: what it waits for, too."""
    return service.control


async def send_uncommitted(producer: Any, topic: str, *values: bytes) -> None:
    """Send into a transaction of this `KafkaProducer`, which it is not asked to commit: it is killed here."""
    await producer._producer.begin_transaction()
    for value in values:
        await producer._producer.send_and_wait(topic, value, partition=0)


async def add_uncommitted(producer: Any, source: Any) -> None:
    """Begin a transaction that has this partition and no record in it."""
    await producer._producer.begin_transaction()
    producer._producer._txn_manager.maybe_add_partition_to_txn(source)


def poll_by(live: Any, poll: Any) -> None:
    """Let a LIVE partition get its records from `poll(its own)`."""
    own = live._poll
    live._poll = lambda: poll(own)


def been_live(live: Any, seconds: float) -> None:
    """Let so much time have passed since the last snapshot."""
    live.snapshots._since -= seconds
    live.snapshots._unpointed_since -= seconds
