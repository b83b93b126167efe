"""Everything that a fault can be done to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from snapreplay.app import names
from tests.chaos.facts import Facts
from tests.chaos.processes import Slot
from tests.chaos.schedule import Fault
from tests.chaos.timeline import Timeline
from tests.chaos.wires import Wires
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
        """Trigger snapshots in all processes; return how many accepted."""
        return sum(slot.process.trigger_snapshot(reason) for slot in self.slots)


Hit = Callable[[str], None]
"""A performer says with it what it does, to whom."""

RecoveryExecutor = Callable[[World, Fault, Hit], AbstractContextManager[None]]
"""Entered, the fault is there; left, it is healed."""
