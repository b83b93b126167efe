"""Carries out a schedule: each lane in a thread, one fault after the other."""

import threading
import traceback
from collections.abc import Sequence

from tests.chaos.faults import brokers, elections, processes, topics, wires
from tests.chaos.schedule import Fault, Kind, Lane
from tests.chaos.world import Performer, World

PERFORMERS: dict[Kind, Performer] = {
    Kind.KILL_BROKER: brokers.kill_broker,
    Kind.KILL_COORDINATOR: brokers.kill_coordinator,
    Kind.KILL_LEADER: brokers.kill_leader,
    Kind.LOSE_BROKER: brokers.lose_broker,
    Kind.FREEZE_BROKER: brokers.freeze_broker,
    Kind.TWO_BROKERS_GONE: brokers.two_brokers_gone,
    Kind.UNCLEAN_ELECTION: elections.unclean_election,
    Kind.ROLLING_RESTART: brokers.rolling_restart,
    Kind.STALE_LEADER: brokers.stale_leader,
    Kind.CUT_BROKERS: brokers.cut_brokers,
    Kind.CUT_CLIENTS: brokers.cut_clients,
    Kind.KILL_PROCESS: processes.kill_process,
    Kind.KILL_PROCESS_LONG: processes.kill_process,
    Kind.STOP_PROCESS: processes.stop_process,
    Kind.KILL_IN_RESTORE: processes.kill_in_restore,
    Kind.ZOMBIE: processes.zombie,
    Kind.REPLACED: processes.replaced,
    Kind.CUT: wires.cut,
    Kind.CUT_REQUESTS: wires.cut,
    Kind.CUT_ANSWERS: wires.cut,
    Kind.DELAY: wires.delay,
    Kind.RESET_BEFORE: wires.reset,
    Kind.RESET_AFTER: wires.reset,
    Kind.LATE_COMMIT: wires.late_commit,
    Kind.FOREIGN_TRANSACTION: topics.foreign_transaction,
    Kind.MOVE_LEADERS: topics.move_leaders,
}


def carry_out(world: World, faults: Sequence[Fault], seconds: float) -> None:
    """Returns when every fault that was begun is healed.

    A fault takes as long as the machine needs (a broker's restart, replicas in sync); those of its lane that come
    later begin later, and those that would begin after `seconds` do not.
    """
    ended = threading.Event()
    lanes = [
        threading.Thread(target=_lane, args=(world, [f for f in faults if f.lane is lane], seconds, ended))
        for lane in Lane
    ]
    for lane in lanes:
        lane.start()
    try:
        for lane in lanes:
            lane.join()
    finally:
        ended.set()
        for lane in lanes:
            lane.join()


def _lane(world: World, faults: Sequence[Fault], seconds: float, ended: threading.Event) -> None:
    for fault in faults:
        if ended.wait(max(0.0, fault.begin_s - world.timeline.now_s())):
            return
        if world.timeline.now_s() > seconds:
            return
        _one(world, fault, ended)


def _one(world: World, fault: Fault, ended: threading.Event) -> None:
    """Carry out a fault. If the machine is too slow for it, the lane continues with the next one: whether everything
    healed is judged when the run settles."""
    injected = world.timeline.begin(fault)
    try:
        if fault.snapshot:
            accepted = world.trigger_snapshots(f"before fault {fault.number}")
            world.timeline.hit(injected, f"full snapshots asked for in {accepted} processes")
        with PERFORMERS[fault.kind](world, fault, lambda text: world.timeline.hit(injected, text)):
            ended.wait(fault.hold_s)
    except Exception as error:  # noqa: BLE001 - after any error the other faults must be carried out and healed
        world.timeline.failed(injected, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    else:
        world.timeline.healed(injected)
