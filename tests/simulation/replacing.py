"""An input is deleted and created again: empty, then with the same records, with others, or with both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program
from tests.simulation.log import Log
from tests.simulation.network import NOWHERE

if TYPE_CHECKING:
    from tests.simulation.world import World

Way = Literal["equal", "longer", "shorter", "prefix"]
WAYS: tuple[Way, ...] = ("equal", "equal", "longer", "longer", "shorter", "prefix")
GONE_SECONDS = (0.0, 0.01, 0.3, 1.5)
EMPTY_SECONDS = (0.0, 0.0, 0.05, 1.0)
REFUSED = ("InputReplaced", "InputShorter", "InputTrimmed")
"""What a partition may be FAILED by, once an input was replaced."""


@dataclass
class Replacement:
    """Of one input, for good when `filled`."""

    topic: str
    way: Way
    old: dict[TopicPartition, Log]
    filled: bool = False

    def may_be_refused(self, number: int, last: Increment) -> bool:
        """A faithful copy must not be, unless there is no record that would show it: trimmed, or none was read."""
        trimmed = self.old[TopicPartition(self.topic, number)].start > 0
        return self.way != "equal" or trimmed or self.topic not in last.anchors


def replace_input(world: World) -> bool:
    """False when it cannot happen now: it is happening, or somebody writes to it in a transaction."""
    broker, rng = world.broker, world.rng
    topic = rng.choice(program.INPUTS[: world.scenario.inputs])
    old = {each: log for each, log in broker.logs.items() if each.topic == topic}
    busy = any(not each.filled for each in world.replaced if each.topic == topic)
    if busy or any(log.open_transactions for log in old.values()):
        return False
    replacement = Replacement(topic, rng.choice(WAYS), old)
    world.replaced.append(replacement)
    broker.delete(topic)
    world.feeder.closed.add(topic)
    gone = rng.choice(GONE_SECONDS)
    world.loop.call_later(gone, _create, world, replacement, context=NOWHERE)
    filled = gone + rng.choice(EMPTY_SECONDS)
    world.loop.call_later(filled, fill, world, replacement, context=NOWHERE)
    world.network.met(f"replaced by {replacement.way}")
    return True


def _create(world: World, replacement: Replacement) -> None:
    if replacement.topic not in world.broker.topic_ids:
        world.broker.create(replacement.topic, world.scenario.partitions)


def fill(world: World, replacement: Replacement) -> None:
    """All its records at once."""
    _create(world, replacement)
    if replacement.filled:
        return
    replacement.filled = True
    world.feeder.closed.discard(replacement.topic)
    rng = world.rng
    for partition, old in replacement.old.items():
        log = world.broker.logs[partition]
        match replacement.way:
            case "equal":
                log.copy(old, old.end)
            case "prefix":
                log.copy(old, rng.randint(0, old.end))
                _others(world, log, old.end + rng.randint(1, 4))
            case "longer":
                _others(world, log, old.end + rng.randint(1, 4))
            case "shorter":
                _others(world, log, old.end // 2)


def _others(world: World, log: Log, end: int) -> None:
    """Records that were never in an input before: their timestamps say so."""
    while log.end < end:
        key = world.rng.choice(program.KEYS).encode()
        timestamp = 2_000_000 + int(world.loop.time() * 1000) + log.end
        log.append(key, str(world.rng.randrange(1000)).encode(), (), timestamp, None)
