"""An unclean election: a replica without the end of an input leads it, and other records take the offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.chaos.faults.asking import asked, wait_in_sync
from tests.chaos.processes import until
from tests.chaos.reassign import reassign
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World
from tests.support import tampering
from tests.support.three_brokers import SIZE

ELECTED_S = 60.0
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
CLEAN = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}


@contextmanager
def unclean_election(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """An input loses records that were read and not committed: the app does not reach the broker that coordinates the
    partition's transactions, for longer than one may last. What was committed would be lost as well, and only a person
    may accept that."""
    inputs = [name for name in world.topics if name.startswith(("payments", "refunds"))]
    topic, partition = inputs[fault.pick % len(inputs)], fault.pick // 4 % world.partitions
    coordinator = asked(lambda: world.facts.coordinator(partition)) - 1
    leader, follower = sorted({*range(SIZE)} - {coordinator}, reverse=bool(fault.pick // 64 % 2))
    replicas = asked(lambda: world.facts.preferred(topic))[partition]
    servers = world.brokers.bootstrap_servers
    with ExitStack() as healing:
        healing.callback(wait_in_sync, world)
        healing.callback(_place, world, topic, partition, replicas)
        healing.callback(_configure, world, topic, CLEAN)
        _configure(world, topic, UNCLEAN)
        _place(
            world, topic, partition, [leader + 1]
        )  # who leads alone still leads with another one
        _place(world, topic, partition, [leader + 1, follower + 1])
        with ExitStack() as cut:
            for slot in world.slots:
                cut.enter_context(world.wires.cut(slot.bundle, coordinator, "both"))
            hit(f"no process and broker {coordinator}, which coordinates partition {partition}")
            healing.callback(world.restart, leader)
            healing.callback(world.brokers.heal)
            world.brokers.cut(follower, "peers")
            _wait(world, topic, partition, [leader + 1], leader + 1)
            yield
            end_offset = tampering.end_offset(servers, topic, partition)
            world.brokers.kill(leader)
            world.brokers.heal()
            _wait(world, topic, partition, [follower + 1], follower + 1)
            lost = end_offset - tampering.end_offset(servers, topic, partition)
            hit(
                f"broker {follower} leads {topic}-{partition}, {lost} offsets before the end at {end_offset}"
            )


def _configure(world: World, topic: str, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        asked(
            lambda name=name, value=value: tampering.configure(  # type: ignore[misc] # bound at once
                world.brokers.bootstrap_servers, topic, name, value
            )
        )


def _place(world: World, topic: str, partition: int, nodes: Sequence[int]) -> None:
    asked(lambda: reassign(world.brokers.bootstrap_servers, topic, {partition: nodes}))
    _wait(world, topic, partition, nodes)


def _wait(
    world: World, topic: str, partition: int, in_sync: Sequence[int], leader: int | None = None
) -> None:
    def holds() -> bool:
        led_by, found = asked(lambda: world.facts.in_sync_with(topic, partition))
        return found == {*in_sync} and (leader is None or led_by == leader)

    if not until(holds, ELECTED_S):
        led_by, found = asked(lambda: world.facts.in_sync_with(topic, partition))
        raise TimeoutError(
            f"{topic}-{partition} has the nodes {found} in sync, not {in_sync}, and node {led_by} leads"
        )
