"""The faults of brokers and of the links between them and to all clients. Numbers count from 0, node ids from 1."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from tests.chaos.processes import until
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World, asked, wait_in_sync
from tests.support.deadlines import is_running
from tests.support.three_brokers import SIZE, Side
from tests.support.wire import Direction

GONE_S = 30.0


@contextmanager
def kill_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    with _killed(world, hit, fault.pick % SIZE):
        yield


@contextmanager
def kill_coordinator(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The broker that coordinates the transactions of a partition."""
    partition = fault.pick % world.partitions
    node_id = asked(lambda: world.facts.coordinator(partition))
    hit(f"partition {partition}'s transactions are coordinated by broker {node_id - 1}")
    with _killed(world, hit, node_id - 1):
        yield


@contextmanager
def kill_leader(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The broker that leads a partition of T-ZengLiang."""
    with _killed(world, hit, _leader(world, fault, hit)):
        yield


@contextmanager
def lose_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Lose a broker as when its machine loses power: the kernel closes no connection, clients and peers wait."""
    number = fault.pick % SIZE
    hit(f"broker {number} without a word")
    with _healing(world, number):
        world.brokers.die(number)
        yield


@contextmanager
def two_brokers_gone(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Two of three: no quorum, no transaction; then both are back."""
    with _killed(world, hit, *({*range(SIZE)} - {fault.pick % SIZE})):
        yield


@contextmanager
def freeze_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Freeze a broker as in a long pause of its machine: its peers and clients hear nothing, no connection ends."""
    number = fault.pick % SIZE
    pid = world.broker_pid(number)
    hit(f"SIGSTOP of broker {number}")
    with _healing(world):
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def rolling_restart(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Each in turn: SIGTERM, its end, a start, in sync."""
    for step in range(SIZE):
        number = (fault.pick + step) % SIZE
        pid = world.broker_pid(number)
        hit(f"SIGTERM of broker {number}")
        with _healing(world, number):
            os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: not is_running(pid), GONE_S)  # type: ignore[misc] # bound at once
            world.brokers.kill(number)  # what has ended already is only forgotten
    yield


@contextmanager
def stale_leader(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The leader of a partition of T-ZengLiang cannot hear its peers, but its clients keep asking it: it answers with
    an end that is not the end any more."""
    with _cut(world, hit, _leader(world, fault, hit), "peers"):
        yield


@contextmanager
def cut_brokers(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """One broker from its peers, in one direction or both."""
    with _cut(world, hit, fault.pick % SIZE, "peers", _direction(fault)):
        yield


@contextmanager
def cut_clients(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """One broker from all clients, in one direction or both: its peers see nothing wrong with it."""
    with _cut(world, hit, fault.pick % SIZE, "clients", _direction(fault)):
        yield


@contextmanager
def _healing(world: World, *gone: int) -> Iterator[None]:
    """Heal in the end: the links are whole, these brokers run again, and every copy is there."""
    try:
        yield
    finally:
        world.brokers.heal()
        if gone:
            world.restart(*gone)
        wait_in_sync(world)


@contextmanager
def _killed(world: World, hit: Hit, *numbers: int) -> Iterator[None]:
    hit(f"SIGKILL of broker {' and '.join(map(str, numbers))}")
    with _healing(world, *numbers):
        for number in numbers:
            world.brokers.kill(number)
        yield


@contextmanager
def _cut(world: World, hit: Hit, broker: int, side: Side, direction: Direction = "both") -> Iterator[None]:
    hit(f"broker {broker} from its {side}, {direction}")
    with _healing(world):
        world.brokers.cut(broker, side, direction)
        yield


def _leader(world: World, fault: Fault, hit: Hit) -> int:
    partition = fault.pick % world.partitions
    node_id = asked(lambda: world.facts.leader(world.increments, partition))
    hit(f"{world.increments}-{partition} is led by broker {node_id - 1}")
    return node_id - 1


def _direction(fault: Fault) -> Direction:
    directions: tuple[Direction, ...] = get_args(Direction)
    return directions[fault.pick // SIZE % len(directions)]
