"""Brokers that lose the end of a log: an unclean election, an older directory of one partition, an older disk.

Whoever asks afterwards finds a shorter log, and then other records where the lost ones were. Owners run meanwhile,
pause, are cut off from the group's coordinator, or are dead.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from snapreplay.app import names
from snapreplay.app.names import place_of_input
from snapreplay.service.ports import CommittedOffset, TopicPartition
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program, told
from tests.simulation.broker import Coordinated
from tests.simulation.history import History, require
from tests.simulation.log import Log
from tests.simulation.network import NOWHERE
from tests.simulation.program import INCREMENTS, TOPICS

if TYPE_CHECKING:
    from tests.simulation.world import World

Part = Literal["input", "increments", "snapshots", "output", "letters", "transactions", "offsets"]
Way = Literal["election", "directory", "disk"]
Owners = Literal["running", "frozen", "cut off", "stopped"]

PARTS: tuple[Part, ...] = ("input", "increments", "snapshots", "output", "letters", "transactions", "offsets")
INTERNAL = ("transactions", "offsets")
"""Kafka's own topics: `__transaction_state` and `__consumer_offsets`."""
WAYS: tuple[Way, ...] = ("election", "election", "directory", "disk")
OWNERS: tuple[Owners, ...] = ("running", "running", "frozen", "cut off", "stopped")

SAID: dict[str, tuple[str, ...]] = {
    "input": ("InputReplaced", "InputShorter", "InputTrimmed", "InputDiffers", "NoRestoreMode"),
    "increments": (
        "LogCut",
        "OffsetsShifted",
        "IncrementsBehind",
        "LogDamaged",  # a batch was cut in two: its changes are there, its increment is gone
        "LogShorter",
        "BrokenChain",
        "NotInitialised",
        "NoUsableSnapshot",
        "NoRestoreMode",
        "StateDisputed",
        "DoubtUnresolved",
        "InputTrimmed",  # what a lost batch has processed is trimmed meanwhile: no owner can process it again
    ),
    "snapshots": ("NoUsableSnapshot", "NoRestoreMode", "LogCut"),
    "output": ("DoubtUnresolved",),
    "letters": (),
    "transactions": ("StateDisputed", "DoubtUnresolved", "BrokenChain", "IncrementsBehind"),
    "offsets": (),
}
"""By what a partition may be FAILED, once this was lost."""

JUMP_MS = 5_000
"""What is written after a loss is younger than all that was lost: its timestamps tell it apart."""


@dataclass(frozen=True)
class Loss:
    """One of them. `back`: how many batches an election loses; an older directory is as old as `age` says, a share of
    `at`. `others`: records that come instead of lost ones. `seconds`: how long owners are disturbed, and until then."""

    at: float
    way: Way
    parts: tuple[Part, ...]
    owners: Owners
    back: int
    age: float
    others: int
    seconds: float

    @property
    def pause_seconds(self) -> float:
        """Return how long after the owners were disturbed it happens."""
        return 0.0 if self.owners == "running" else 0.1


def draw_losses(rng: random.Random, chaos_seconds: float) -> tuple[Loss, ...]:
    """One or two."""
    count = rng.choice((1, 1, 1, 2))
    return tuple(_draw(rng, chaos_seconds) for _ in range(count))


def _draw(rng: random.Random, chaos_seconds: float) -> Loss:
    chosen = rng.sample(PARTS, rng.choice((1, 1, 1, 2, 3)))
    return Loss(
        at=chaos_seconds * (0.2 + 0.7 * rng.random()),
        way=rng.choice(WAYS),
        parts=tuple(each for each in PARTS if each in chosen),
        owners=rng.choice(OWNERS),
        back=rng.choice((0, 1, 1, 2, 3, 5, 8, 20)),
        age=rng.random() ** 2,
        others=rng.choice((0, 0, 2, 6, 12)),
        seconds=rng.choice((0.05, 0.3, 1.0, 3.0)),
    )


class Losses:
    """The losses, and of which partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.parts: defaultdict[int, set[str]] = defaultdict(set)
        self._transactions: dict[Loss, dict[str, Coordinated]] = {}
        self._offsets: dict[Loss, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._backups: dict[Loss, dict[TopicPartition, tuple[int, int, int]]] = {}

    def schedule(self, began: float) -> None:
        loop = self._world.loop
        for loss in self._world.scenario.losses:
            if loss.way != "election" or set(INTERNAL) & set(loss.parts):
                loop.call_at(began + loss.at * (1 - loss.age), self._back_up, loss)
            loop.call_at(began + loss.at, self.begin, loss)

    def explain(self, number: int, kind: str) -> bool:
        """Say whether a partition may be FAILED by this kind of error."""
        return any(kind in SAID[part] for part in self.parts[number])

    def blocks(self, number: int) -> bool:
        """Say whether a transaction of this partition can never end: its coordinator has forgotten that it did."""
        lost = "transactions" in self.parts[number]
        return lost and self._world.broker.is_blocked(names.transactional_id(program.APP_ID, number))

    def tears(self, number: int) -> bool:
        """Say whether a transaction of this partition was torn apart by its coordinator: no owner can see that."""
        return names.transactional_id(program.APP_ID, number) in self._world.broker.torn

    def is_waited_for(self) -> bool:
        """Say whether everybody waits for `init`, because nothing is left of a partition but what `init` has written.

        Raises:
            Violation: they wait although there is more.
        """
        world = self._world
        lost = sorted(number for number, parts in self.parts.items() if "increments" in parts)
        if not lost or any(each.supervisor is not None for each in world.processes):
            return False
        for number in lost:
            log = world.broker.log(INCREMENTS, number)
            last = next((each.batch for _, each in told.newest(log, Increment, log.stable)), 0)
            require(last == 0, f"everybody waits for `init`; partition {number} is at batch {last}")
        world.network.met("said of a loss: NotBegun")
        return True

    def hides(self, number: int, batch: int | None, story: History) -> bool:
        """Say whether the end of the log was lost before anybody could read this batch: its markers were still to
        come when its commit was answered."""
        return "increments" in self.parts[number] and batch not in {*story.states, *(left[0] for left in story.left)}

    def settle(self) -> None:
        """Operators end what no other will end: transactions whose markers are lost."""
        for log in self._world.broker.logs.values():
            log.abort_hanging()

    def _back_up(self, loss: Loss) -> None:
        logs = self._world.broker.logs
        self._transactions[loss] = self._world.broker.coordinated()
        self._offsets[loss] = self._world.broker.group_offsets
        self._backups[loss] = {each: (log.end, log.start, log.epoch) for each, log in logs.items()}

    def begin(self, loss: Loss) -> None:
        """First what happens to the owners."""
        world = self._world
        if world.healing:
            return
        for process in list(world.processes):
            if loss.owners == "frozen":
                process.stall(loss.seconds + 0.2)
            elif loss.owners == "cut off":
                world.group.cut(process, loss.seconds + 0.2)
            elif loss.owners == "stopped":
                process.crash()
        world.loop.call_later(loss.pause_seconds, self._happen, loss, context=NOWHERE)

    def _happen(self, loss: Loss) -> None:
        world, broker = self._world, self._world.broker
        if world.healing:
            return
        number = world.rng.randrange(world.scenario.partitions)
        if "transactions" in loss.parts or loss.way == "disk":
            self._forget(loss)
        if "offsets" in loss.parts or loss.way == "disk":
            changed = broker.restore_offsets(self._offsets[loss])
            world.network.faults.counts[f"lost by {loss.way}: offsets"] += changed
        for target in list(broker.logs) if loss.way == "disk" else self._targets(loss, number):
            part = part_of(target.topic)
            count = self._lose(loss, target, broker.logs[target])
            world.network.trace("world", f"{loss.way}: {target} loses {count}")
            if count:
                self.parts[target.partition].add(part)
                world.network.met(f"lost by {loss.way}: {part}, owners {loss.owners}")
            if target.topic in program.INPUTS:  # to an internal topic only the app writes
                world.feeder.jump(JUMP_MS)
                world.feeder.add(target, loss.others)
                world.loop.call_later(
                    loss.seconds * world.rng.random(), partial(world.feeder.write, target, loss.others), context=NOWHERE
                )

    def _forget(self, loss: Loss) -> None:
        """The coordinator's log; an election loses as much as an older directory would."""
        world = self._world
        if world.broker.forget_since(self._transactions[loss]):
            world.network.met(f"lost by {loss.way}: transactions, owners {loss.owners}")
            for number in range(world.scenario.partitions):
                self.parts[number].add("transactions")

    def _targets(self, loss: Loss, number: int) -> list[TopicPartition]:
        inputs = (*self._world.inputs, *self._world.internal)
        topics = [
            self._world.rng.choice(inputs) if part == "input" else TOPICS[part]
            for part in loss.parts
            if part not in INTERNAL
        ]
        return [TopicPartition(*place_of_input(topic, number)) for topic in topics]

    def _lose(self, loss: Loss, target: TopicPartition, log: Log) -> int:
        broker = self._world.broker
        if loss.way == "election":
            if random.Random(loss.at).random() < 0.3:  # the old leader is still there, cut off
                broker.cut_off(target, loss.seconds)
            ends = log.batch_ends()
            end = max(ends[max(0, len(ends) - 1 - loss.back)], min(log.start, log.end))
            return broker.lose(target, end, log.start, None)
        if target not in self._backups[loss]:
            return 0  # its topic did not exist then
        end, start, epoch = self._backups[loss][target]
        end = min(end, log.end)
        again = epoch + 1 if loss.way == "disk" else None
        return broker.lose(target, end, min(start, log.start), again)


def part_of(topic: str) -> str:
    """Return which part of the app a topic is."""
    return next((part for part, name in TOPICS.items() if name == topic), "input")
