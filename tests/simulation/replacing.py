"""An input is deleted and created again: empty, then with the same records, with others, or with both.

So is T-ZengLiang or T-QuanLiang while it is owned, empty. What was in it is in the memory of its owners, who do not die
any more: nothing may be lost, and nothing may happen twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from snapreplay.service.core.phase import Phase
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Claim, Increment
from tests.simulation import program, told
from tests.simulation.log import Log
from tests.simulation.network import NOWHERE
from tests.simulation.program import INCREMENTS

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
    """The replacement of one input, for good when `filled`."""

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
    topic = rng.choice(world.inputs)
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
                if world.scenario.stays_shorter:
                    world.feeder.stop(replacement.topic)


def _others(world: World, log: Log, end: int) -> None:
    """Records that were never in an input before: their timestamps say so."""
    while log.end < end:
        key = world.rng.choice(program.KEYS).encode()
        younger = 1_000_000 + int(world.loop.time() * 1000) + log.end
        timestamp = world.feeder.now_ms + younger
        log.append(key, str(world.rng.randrange(1000)).encode(), (), timestamp, None)


# ------------------------------------------------------------------------ an own topic

AFTER = ("stall", "rebalance", "cut", "trigger", "start", "replace", "suspect", "freeze")
"""Events that may come after it."""

LEADS_NOWHERE = ("BrokenChain", "LogShorter", "LogCut", "NoRestoreMode", "NoUsableSnapshot")
"""What an owner without a state in memory makes of orphans."""

OWN_GONE_SECONDS = (0.0, 0.0, 0.05, 0.5, 2.0, 6.0)


def replace_own(world: World, topic: str) -> bool:
    """False when it cannot happen now: somebody's state is not in the memory of a process that lives."""
    broker = world.broker
    hotfixes = world.scenario.poison > 0 and not world.scenario.dead_letter
    if topic not in broker.topic_ids or world.replaced or broker.stale or hotfixes:
        return False
    late = ("fence.late", "fence.stall_before")
    if any(world.network.faults.counts[each] for each in late):
        return False  # one that comes late looks like a new owner's: ADR 11 says what was given up
    if not all(_is_held(world, number) for number in range(world.scenario.partitions)):
        return False
    world.own_replaced.append(topic)
    world.network.faults.spare_owners()
    broker.delete(topic)
    if topic == INCREMENTS:
        world.group.topic_changed(gone=True)
    gone = world.rng.choice(OWN_GONE_SECONDS)
    world.loop.call_later(gone, create_own, world, topic, context=NOWHERE)
    return True


def create_own(world: World, topic: str) -> None:
    """Create a topic as `snapreplay topics ensure` does."""
    if topic not in world.broker.topic_ids:
        world.broker.create(topic, world.scenario.partitions)
        if topic == INCREMENTS:
            world.group.topic_changed(gone=False)


def _is_held(world: World, number: int) -> bool:
    """Say whether the last one who claimed is alive and LIVE."""
    log = world.broker.logs.get(TopicPartition(INCREMENTS, number))
    claims = told.newest(log, Claim, log.stable) if log is not None else iter(())
    last = next((claim.process_id for _, claim in claims), None)
    for process in world.processes:
        if any(each is not process and each.instance_id == process.instance_id for each in world.processes):
            continue  # one of the two steps down, and is killed for it
        status = process.board.get(number)
        ours = last == process.identity.process_id
        is_live = status is not None and status.phase is Phase.LIVE and not process.stopping
        if ours and is_live and world.group.owner(number) is process:  # not about to let it go
            return True
    return False
