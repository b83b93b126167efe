"""Everything that a fault can be done to."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaException

from snapreplay.app import names
from tests.chaos.facts import Facts
from tests.chaos.processes import Slot, until
from tests.chaos.schedule import Fault
from tests.chaos.timeline import Timeline
from tests.chaos.wires import Wires
from tests.support.deadlines import scaled
from tests.support.three_brokers import ThreeBrokers


@dataclass
class World:
    """One run. `topics` are those whose replicas are waited for: the app's, and Kafka's for transactions."""

    app_id: str
    partitions: int
    brokers: ThreeBrokers
    facts: Facts
    wires: Wires
    slots: list[Slot]
    timeline: Timeline
    topics: tuple[str, ...]

    @property
    def increments(self) -> str:
        return names.increments_topic(self.app_id)

    def slot(self, pick: int) -> Slot:
        return self.slots[pick % len(self.slots)]

    def broker_pid(self, number: int) -> int:
        return self.brokers.cluster.node(number).pid

    def restart(self, *numbers: int) -> None:
        """Start these brokers again, at once, and wait until a transaction was committed through each."""
        with ThreadPoolExecutor(len(numbers)) as pool:
            list(pool.map(self.brokers.restart, numbers))

    def trigger_snapshots(self, reason: str) -> int:
        return sum(slot.process.trigger_snapshot(reason) for slot in self.slots)


Hit = Callable[[str], None]
"""A performer says with it what it does, to whom."""

Performer = Callable[[World, Fault, Hit], AbstractContextManager[None]]
"""Entered, the fault is there; left, it is healed."""


T = TypeVar("T")
ASK_S = 60.0
PAUSE_S = 0.1
IN_SYNC_S = 60.0


def asked(question: Callable[[], T]) -> T:
    """The answer, asked again while no broker gives one or it names no leader (-1).

    Raises:
        TimeoutError: none for a minute, or longer on a busy machine.
    """
    deadline = time.monotonic() + scaled(ASK_S)
    while True:
        try:
            answer = question()
        except (KafkaException, KeyError, OSError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker answers: {error}") from error
        else:
            if answer != -1:
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError("there is no leader")
        time.sleep(PAUSE_S)


def wait_in_sync(world: World) -> None:
    """The next fault is to hit a cluster that has all copies: two at once are a kind of their own."""
    if not until(lambda: asked(lambda: world.facts.in_sync(world.topics)), IN_SYNC_S):
        world.timeline.problem(f"replicas still out of sync {scaled(IN_SYNC_S):.0f} s after healing")
