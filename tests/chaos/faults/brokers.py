"""What is done to brokers. Numbers count from 0, Kafka's node ids from 1."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.faults.asking import asked, wait_in_sync
from tests.chaos.processes import until
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World
from tests.support.three_brokers import SIZE

GONE_S = 30.0


@contextmanager
def kill_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Any broker."""
    with _killed(world, hit, fault.pick % SIZE):
        yield


@contextmanager
def kill_coordinator(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The one that coordinates the transactions of a partition."""
    partition = fault.pick % world.partitions
    node_id = asked(lambda: world.facts.coordinator(partition))
    hit(f"partition {partition}'s transactions are coordinated by broker {node_id - 1}")
    with _killed(world, hit, node_id - 1):
        yield


@contextmanager
def kill_leader(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """The one that leads a partition of T-ZengLiang."""
    partition = fault.pick % world.partitions
    node_id = asked(lambda: world.facts.leader(world.increments, partition))
    hit(f"{world.increments}-{partition} is led by broker {node_id - 1}")
    with _killed(world, hit, node_id - 1):
        yield


@contextmanager
def lose_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """As when its machine loses power: the kernel closes no connection, clients and peers wait."""
    number = fault.pick % SIZE
    world.brokers.die(number)
    hit(f"broker {number} without a word")
    try:
        yield
    finally:
        world.brokers.heal()
        world.restart(number)
        wait_in_sync(world)


@contextmanager
def two_brokers_gone(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Two of three: no quorum, no transaction; then both are back."""
    left = fault.pick % SIZE
    gone = [number for number in range(SIZE) if number != left]
    for number in gone:
        world.brokers.kill(number)
    hit(f"SIGKILL of brokers {gone[0]} and {gone[1]}")
    try:
        yield
    finally:
        world.restart(*gone)
        wait_in_sync(world)


@contextmanager
def stall_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """As in a long pause of its machine: its peers and clients hear nothing, no connection ends."""
    number = fault.pick % SIZE
    pid = world.broker_pid(number)
    os.kill(pid, signal.SIGSTOP)
    hit(f"SIGSTOP of broker {number}")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_in_sync(world)


@contextmanager
def rolling_restart(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Each in turn: SIGTERM, its end, a start, in sync."""
    for step in range(SIZE):
        number = (fault.pick + step) % SIZE
        pid = world.broker_pid(number)
        os.kill(pid, signal.SIGTERM)
        hit(f"SIGTERM of broker {number}")
        until(lambda pid=pid: not _runs(pid), GONE_S)  # type: ignore[misc] # bound at once
        world.brokers.kill(number)  # what has ended already is only forgotten
        world.restart(number)
        wait_in_sync(world)
    yield


@contextmanager
def _killed(world: World, hit: Hit, number: int) -> Iterator[None]:
    world.brokers.kill(number)
    hit(f"SIGKILL of broker {number}")
    try:
        yield
    finally:
        world.restart(number)
        wait_in_sync(world)


def _runs(pid: int) -> bool:
    """Also a zombie counts as gone: its keeper has not asked for it yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123 - no path, the kernel
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
