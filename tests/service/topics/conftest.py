"""The topics of an app that ran, in memory: batches 1 and 2, a snapshot, 4 and 5, a snapshot, 7 and 8 (3 and 6 point).
What becomes of any damaged byte is in tests/damage."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind
from tests.damage import memory
from tests.damage.edits import Change
from tests.damage.gallery import Target
from tests.damage.memory import World
from tests.simulation.cluster import SimCluster
from tests.support.in_memory import InMemory


@pytest.fixture(scope="module")
def lived() -> World:
    """Made once."""
    return memory.world()


@pytest.fixture
def past(lived: World) -> Callable[..., World]:
    """`past((kind, number, change), …)` is a copy with the values of these records changed, one after the other."""

    def make(*changes: tuple[RecordKind, int, Change]) -> World:
        world = lived.copy()
        for kind, number, change in changes:
            target = Target("", kind, number)
            topic = f"memory-{target.topic}"
            slots = world.slots(topic)
            next(target.changed([change]))(slots)
            world.rewrite(topic, slots)
        return world

    return make


@pytest.fixture
def recovered() -> Callable[[World], Any]:
    """`recovered(world)` is the outcome; Any, as the test knows how it ends."""
    return memory.recovered


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[World, RecordKind, int], int]:
    """`cut(world, kind, number)` ends the log before that record, as all brokers agree; where that is."""

    async def agreed(cluster: Any, partition: TopicPartition) -> int:
        end: int = cluster.broker.logs[partition].end
        return end

    def end(world: World, kind: RecordKind, number: int) -> int:
        monkeypatch.setattr(SimCluster, "agreed_end_offset", agreed)
        target = Target("", kind, number)
        topic = f"memory-{target.topic}"
        offset, log = target.of(world.slots(topic)).offset, world.log(topic)
        log.cut(offset)
        return offset

    return end


@pytest.fixture
def commit(bench: InMemory) -> Callable[[LogRecord], Awaitable[int]]:
    """`await commit(record)` in a transaction of its own; the record's offset."""

    async def one(record: LogRecord) -> int:
        producer = await bench.cluster.fence(bench.app.app_id)
        (offset,) = await producer.commit(0, (), (record,))
        return offset

    return one
