"""The faults of service processes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from snapreplay.service.core.phase import RECOVERING
from tests.chaos.processes import POLL_S, Process, Slot, until
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World

SLOW_S = 0.05
"""Makes each phase of a restore long enough to be seen from outside."""

ALL_PHASES_S, PHASE_S = 75.0, 15.0
STEPS_DOWN_S = 20.0
DOWN = {"failed", "fenced", "closed"}


@contextmanager
def kill_process(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """SIGKILL; the same name starts again when the fault is over, at once or after its session."""
    slot = world.slot(fault.pick)
    hit(f"SIGKILL of {slot.process.name}")
    slot.kill()
    with _started_again(slot):
        yield


@contextmanager
def stop_process(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """SIGTERM: its last snapshot, its LeaveGroup, exit code 0; then it starts again."""
    slot = world.slot(fault.pick)
    hit(f"SIGTERM of {slot.process.name}")
    slot.stop()
    with _started_again(slot):
        yield


@contextmanager
def zombie(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Stop a process in the middle of its work, for longer than its session and its transaction; others own
    its partitions when it continues and believes that nothing happened."""
    process = world.slot(fault.pick).process
    hit(f"SIGSTOP of {process.name}")
    process.freeze()
    try:
        yield
    finally:
        process.thaw()
        hit(f"SIGCONT of {process.name}")


@contextmanager
def replaced(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Stop a process as `zombie` does; meanwhile somebody starts a successor of the same name. The old one has to
    step down."""
    slot = world.slot(fault.pick)
    old = slot.process
    hit(f"SIGSTOP of {old.name}")
    old.freeze()
    new = slot.start()
    hit(f"{new.name} takes its name")
    try:
        yield
    finally:
        old.expected_down = True
        old.thaw()
        hit(f"SIGCONT of {old.name}")
        _wait_down(old, hit)
        old.kill()


@contextmanager
def kill_in_restore(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Kill a process, and again in every phase of the restores that follow, as far as the time goes."""
    slot = world.slot(fault.pick)
    over_s = world.timeline.now_s() + ALL_PHASES_S
    # Another one first each time: on a busy machine the time does not suffice for all.
    first = fault.pick % len(RECOVERING)
    with _started_again(slot), world.wires.delayed(slot.bundle, SLOW_S):
        for phase in RECOVERING[first:] + RECOVERING[:first]:
            slot.kill()
            process = slot.start()
            seen = _seen(world, process, phase, min(over_s, world.timeline.now_s() + PHASE_S))
            hit(f"SIGKILL of {process.name} {'in' if seen else 'before it was in'} {phase}")
        slot.kill()
    yield


def _seen(world: World, process: Process, phase: str, until_s: float) -> bool:
    """Wait for a phase, however busy the machine is: what others have taken over may never come back."""
    while phase not in process.phases().values():
        if world.timeline.now_s() > until_s:
            return False
        time.sleep(POLL_S)
    return True


@contextmanager
def _started_again(slot: Slot) -> Iterator[None]:
    try:
        yield
    finally:
        slot.start()


def _wait_down(old: Process, hit: Hit) -> None:
    """Wait until the old process owns nothing that it could believe to be its own."""

    def down() -> bool:
        status = old.get("/restore-status?scope=local")
        return status is not None and {p["phase"] for p in status["partitions"]} <= DOWN

    if until(down, STEPS_DOWN_S):
        hit(f"{old.name} stepped down: {old.phases()}")
    else:
        hit(f"{old.name} has not stepped down in {STEPS_DOWN_S:.0f} s: {old.phases()}")
