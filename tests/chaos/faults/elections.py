"""An unclean election: a replica without the end of an input leads it, and other records take the offsets."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World, asked, wait_in_sync
from tests.support import tampering
from tests.support.reassign import reassign, until_placed
from tests.support.three_brokers import SIZE

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
    log = _Log(world, world.brokers.server(coordinator), topic, partition)
    with ExitStack() as healing:
        healing.callback(wait_in_sync, world)
        healing.callback(log.place, asked(lambda: world.facts.preferred(topic))[partition])
        healing.callback(log.configure, CLEAN)
        log.configure(UNCLEAN)
        log.place([leader + 1])  # who leads alone still leads when another one follows
        log.place([leader + 1, follower + 1])
        with ExitStack() as cut:
            for slot in world.slots:
                cut.enter_context(world.wires.cut(slot.bundle, coordinator, "both"))
            hit(f"no process and broker {coordinator}, which coordinates partition {partition}")
            healing.callback(world.restart, leader)
            healing.callback(world.brokers.heal)
            world.brokers.cut(follower, "peers")
            log.wait([leader + 1], leader + 1)
            yield
            end_offset = log.end_offset()
            world.brokers.kill(leader)
            world.brokers.heal()
            log.wait([follower + 1], follower + 1)
            lost = end_offset - log.end_offset()
            hit(f"broker {follower} leads {log}, {lost} offsets before the end at {end_offset}")


class _Log(NamedTuple):
    """A partition of an input. `server` is asked about it: one that is neither cut from its peers nor killed."""

    world: World
    server: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def servers(self) -> str:
        return self.world.brokers.bootstrap_servers

    def end_offset(self) -> int:
        return tampering.end_offset(self.servers, self.topic, self.partition)

    def configure(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            asked(partial(tampering.configure, self.servers, self.topic, name, value))

    def place(self, nodes: Sequence[int]) -> None:
        asked(lambda: reassign(self.servers, self.topic, {self.partition: nodes}))
        self.wait(nodes)

    def wait(self, in_sync: Sequence[int], leader: int | None = None) -> None:
        """Wait until these nodes are in sync, and this one leads."""

        def holds(at: Any) -> bool:
            return at.id != self.partition or ({*at.isrs} == {*in_sync} and leader in {None, at.leader})

        until_placed(self.server, self.topic, holds)
