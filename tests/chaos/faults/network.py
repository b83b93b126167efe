"""What is done to the network between brokers, and between a broker and all clients: packets are dropped, no RST."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from tests.chaos.faults.asking import asked, wait_in_sync
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World
from tests.support.flows import Direction, Side
from tests.support.three_brokers import SIZE


@contextmanager
def stale_leader(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The leader of a partition of T-ZengLiang cannot hear its peers, but its clients go on asking it: it answers with
    an end that is not the end any more."""
    partition = fault.pick % world.partitions
    node_id = asked(lambda: world.facts.leader(world.increments, partition))
    hit(f"broker {node_id - 1}, leader of {world.increments}-{partition}, cut from its peers")
    with _cut(world, node_id - 1, "peers"):
        yield


@contextmanager
def cut_brokers(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """One broker from its peers, in one direction or both."""
    broker, direction = fault.pick % SIZE, _direction(fault)
    hit(f"broker {broker} from its peers, {direction}")
    with _cut(world, broker, "peers", direction):
        yield


@contextmanager
def cut_clients(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """One broker from all clients, in one direction or both: its peers see nothing wrong with it."""
    broker, direction = fault.pick % SIZE, _direction(fault)
    hit(f"broker {broker} from all clients, {direction}")
    with _cut(world, broker, "clients", direction):
        yield


@contextmanager
def _cut(world: World, broker: int, side: Side, direction: Direction = "both") -> Iterator[None]:
    world.brokers.cut(broker, side, direction)
    try:
        yield
    finally:
        world.brokers.heal()
        wait_in_sync(world)


def _direction(fault: Fault) -> Direction:
    directions: tuple[Direction, ...] = get_args(Direction)
    return directions[fault.pick // SIZE % len(directions)]
