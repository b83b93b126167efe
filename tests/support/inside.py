"""The private parts of a service that tests look at, or break: they have their names here and nowhere else.

All of it is Any: a test that looks at what is not there fails, which is what it is for.
"""

from typing import Any

from snapreplay.service.kafka.batching import Batches, TopicShape
from snapreplay.service.kafka.config import MIB
from snapreplay.service.ports import LogRecord


def supervisor(service: Any) -> Any:
    return service._supervisor


def runner(service: Any, partition: int = 0) -> Any:
    return supervisor(service).runners[partition]


def membership(service: Any) -> Any:
    return service._membership


def background(service: Any) -> Any:
    """Return the thread of its heartbeats and of HTTP."""
    return service._background


def live(runner: Any) -> Any:
    return runner._live


def suspects_duplicate(membership: Any) -> bool:
    """Whether another process seems to run with its instance id."""
    return bool(membership._evictions.suspects_duplicate)


def watch(runner: Any) -> Any:
    """The watch over its ownership."""
    return runner._incarnation.watch


def reporter(runner: Any) -> Any:
    return runner._reporter


def monitor(runner: Any) -> Any:
    """Return the watch over what a recovery would need, of the incarnation that is LIVE now."""
    return live(runner).snapshots.monitor


def committer(runner: Any) -> Any:
    return live(runner).committer


def producer(runner: Any) -> Any:
    """Return the one of the incarnation that is LIVE now."""
    return committer(runner)._producer


def reader(runner: Any) -> Any:
    """Return the one of the inputs, of the incarnation that is LIVE now."""
    return live(runner)._fetcher._reader


def sink(producer: Any) -> Any:
    """Return what a `KafkaProducer` sends with."""
    return producer._sink


def control(service: Any) -> Any:
    """Return more than `Service.control` promises: what it waits for, too."""
    return service.control


async def send_uncommitted(producer: Any, topic: str, *values: bytes) -> None:
    """Send into a transaction of this `KafkaProducer`, which it is not asked to commit: it is killed here."""
    shape = TopicShape(await sink(producer).partition_count(topic), MIB, MIB)
    for value in values:
        batches = Batches({topic: shape}, 0)
        batches.add(LogRecord(topic, value), 0, None)
        await sink(producer).begin(batches.runs)
        await sink(producer).write(batches.runs)


async def add_uncommitted(producer: Any, source: Any) -> None:
    """Begin a transaction that has this partition and no record in it, once the coordinator knows it."""
    await sink(producer).begin([source])


def poll_by(live: Any, poll: Any) -> None:
    """Let a LIVE partition get its records from `poll(its own)`."""
    own = live._poll
    live._poll = lambda: poll(own)
