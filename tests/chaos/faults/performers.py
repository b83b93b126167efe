"""Which function does which kind of fault."""

from __future__ import annotations

from tests.chaos.faults import brokers, network, processes, topics, wires
from tests.chaos.schedule import Kind
from tests.chaos.world import RecoveryExecutor

PERFORMERS: dict[Kind, RecoveryExecutor] = {
    Kind.KILL_BROKER: brokers.kill_broker,
    Kind.KILL_COORDINATOR: brokers.kill_coordinator,
    Kind.KILL_LEADER: brokers.kill_leader,
    Kind.LOSE_BROKER: brokers.lose_broker,
    Kind.STALL_BROKER: brokers.stall_broker,
    Kind.TWO_BROKERS_GONE: brokers.two_brokers_gone,
    Kind.ROLLING_RESTART: brokers.rolling_restart,
    Kind.STALE_LEADER: network.stale_leader,
    Kind.CUT_BROKERS: network.cut_brokers,
    Kind.CUT_CLIENTS: network.cut_clients,
    Kind.KILL_PROCESS: processes.kill_process,
    Kind.KILL_PROCESS_LONG: processes.kill_process,
    Kind.STOP_PROCESS: processes.stop_process,
    Kind.KILL_IN_RESTORE: processes.kill_in_restore,
    Kind.ZOMBIE: processes.zombie,
    Kind.REPLACED: processes.replaced,
    Kind.MUTE: wires.one_broker,
    Kind.MUTE_REQUESTS: wires.one_broker,
    Kind.MUTE_ANSWERS: wires.one_broker,
    Kind.DELAY: wires.all_brokers,
    Kind.CUT_BEFORE_BROKER: wires.all_brokers,
    Kind.CUT_AFTER_BROKER: wires.all_brokers,
    Kind.LATE_COMMIT: wires.late_commit,
    Kind.FOREIGN_TRANSACTION: topics.foreign_transaction,
    Kind.MOVE_LEADERS: topics.move_leaders,
}
