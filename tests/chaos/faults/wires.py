"""What is done on the wires between one service process and the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.schedule import Fault, Kind
from tests.chaos.wires import CLEAN, Rule
from tests.chaos.world import Hit, World
from tests.support.three_brokers import SIZE

ONE_BROKER: dict[Kind, Rule] = {
    Kind.MUTE: Rule(mute_requests=True, mute_answers=True),
    Kind.MUTE_REQUESTS: Rule(mute_requests=True),
    Kind.MUTE_ANSWERS: Rule(mute_answers=True),
}
ALL_BROKERS: dict[Kind, Rule] = {
    Kind.DELAY: Rule(delay_s=0.1),
    Kind.CUT_BEFORE_BROKER: Rule(cut="before"),
    Kind.CUT_AFTER_BROKER: Rule(cut="after"),
    Kind.LATE_COMMIT: Rule(late_commit=True),
}


@contextmanager
def one_broker(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Nothing passes between one process and one broker, in one direction or both; then what was held arrives."""
    slot, broker = world.slot(fault.pick), fault.pick // len(world.slots) % SIZE
    hit(f"{slot.process.name} and broker {broker}")
    world.wires.set(slot.bundle, ONE_BROKER[fault.kind], broker)
    try:
        yield
    finally:
        world.wires.set(slot.bundle, CLEAN)


@contextmanager
def all_brokers(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Late answers, or connections that end now and then, on all wires of one process."""
    slot = world.slot(fault.pick)
    hit(f"{slot.process.name} and all brokers")
    world.wires.set(slot.bundle, ALL_BROKERS[fault.kind])
    try:
        yield
    finally:
        world.wires.set(slot.bundle, CLEAN)


@contextmanager
def late_commit(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """On each wire the next EndTxn is held until the transaction after it has begun (KAFKA-17754)."""
    slot = world.slot(fault.pick)
    before = len(slot.bundle.delivered)
    with all_brokers(world, fault, hit):
        yield
    world.wires.settled(slot.bundle)
    for late in slot.bundle.delivered[before:]:
        hit(f"a late EndTxn of {late.transactional_id} was answered with {late.error_code}")
        if late.error_code == 0:
            world.timeline.problem(
                f"a late EndTxn of {late.transactional_id} decided the transaction after its own:"
                " the producer was used again after a request without an answer"
            )
