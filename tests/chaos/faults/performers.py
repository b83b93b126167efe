"""The functions that carry out the kinds of faults."""

from __future__ import annotations

from tests.chaos.faults import brokers, elections, processes, topics, wires
from tests.chaos.schedule import Kind
from tests.chaos.world import RecoveryExecutor

PERFORMERS: dict[Kind, RecoveryExecutor] = {
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
