"""The faults on the wires between one service process and the brokers."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.schedule import Fault, Kind
from tests.chaos.world import Hit, World
from tests.support.three_brokers import SIZE
from tests.support.wire import Direction, Fate

DELAY_S = 0.1
DIRECTIONS: dict[Kind, Direction] = {Kind.CUT: "both", Kind.CUT_REQUESTS: "in", Kind.CUT_ANSWERS: "out"}
FATES: dict[Kind, Fate] = {Kind.RESET_BEFORE: "reset before", Kind.RESET_AFTER: "reset after"}


@contextmanager
def cut(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Nothing passes between one process and one broker, in one direction or both; then what was held arrives."""
    slot, broker = world.slot(fault.pick), fault.pick // len(world.slots) % SIZE
    hit(f"{slot.process.name} and broker {broker}")
    with world.wires.cut(slot.bundle, broker, DIRECTIONS[fault.kind]):
        yield


@contextmanager
def delay(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Late answers on all wires of one process."""
    slot = world.slot(fault.pick)
    hit(f"{slot.process.name} and all brokers")
    with world.wires.delayed(slot.bundle, DELAY_S):
        yield


@contextmanager
def reset(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Connections that end now and then, on all wires of one process."""
    slot = world.slot(fault.pick)
    hit(f"{slot.process.name} and all brokers")
    with world.wires.reset(slot.bundle, FATES[fault.kind]):
        yield


@contextmanager
def late_commit(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Hold the next EndTxn on each wire until the transaction after it has begun (KAFKA-17754)."""
    slot = world.slot(fault.pick)
    hit(f"{slot.process.name} and all brokers")
    with world.wires.late_commits(slot.bundle) as found:
        yield
    for late in found:
        hit(f"a late EndTxn of {late.transactional_id} was answered with {late.error_code}")
        if late.error_code == 0:
            world.timeline.problem(
                f"a late EndTxn of {late.transactional_id} decided the transaction after its own:"
                " the producer was used again after a request without an answer"
            )
