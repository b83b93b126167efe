"""Which fault begins when, and for how long: a function of the seed and nothing else. Pure.

Three lanes run side by side, each one fault at a time: what is done to brokers, to service processes, and to the wires
between them and to the topics. A lane draws from a shuffled deck and shuffles anew when it is empty, so that no kind is
drawn twice before every kind of its lane was drawn once.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

WARM_UP_S = 2.0
"""The run's first seconds stay quiet, so that the first fault hits something that works."""

GAP_S = (0.5, 3.0)
PICK_MAX = 2**16


class Lane(StrEnum):
    """What is hit. One fault at a time in each."""

    BROKERS = "brokers"
    PROCESSES = "processes"
    WIRES = "wires"


class Kind(StrEnum):
    """What is done. Every kind heals itself."""

    KILL_BROKER = "kill-broker"
    KILL_COORDINATOR = "kill-coordinator"  # of the transactions of one partition of ours
    KILL_LEADER = "kill-leader"  # of one partition of T-ZengLiang
    LOSE_BROKER = "lose-broker"  # as without power: no RST, no FIN
    STALL_BROKER = "stall-broker"  # SIGSTOP: no answer, no RST
    STALE_LEADER = "stale-leader"  # a leader of ours cut from its peers, not from its clients
    CUT_BROKERS = "cut-brokers"  # one broker from its peers, in one direction
    CUT_CLIENTS = "cut-clients"  # one broker from all clients, not from its peers
    TWO_BROKERS_GONE = "two-brokers-gone"
    ROLLING_RESTART = "rolling-restart"  # SIGTERM and start, one after the other

    KILL_PROCESS = "kill-process"  # SIGKILL, started again at once
    KILL_PROCESS_LONG = "kill-process-long"  # started again after the others took over
    STOP_PROCESS = "stop-process"  # SIGTERM, started again
    KILL_IN_RESTORE = "kill-in-restore"  # SIGKILL once in every phase of a restore
    ZOMBIE = "zombie"  # SIGSTOP for longer than session and transaction, SIGCONT
    REPLACED = "replaced"  # the same, and a successor of the same name is started meanwhile

    MUTE = "mute"  # nothing passes between one process and one broker
    MUTE_REQUESTS = "mute-requests"
    MUTE_ANSWERS = "mute-answers"
    DELAY = "delay"
    CUT_BEFORE_BROKER = "cut-before-broker"  # the connection dies, the broker saw no request
    CUT_AFTER_BROKER = "cut-after-broker"  # the connection dies, the broker has done it
    LATE_COMMIT = "late-commit"  # EndTxn held until the next transaction (KAFKA-17754)
    FOREIGN_TRANSACTION = "foreign-transaction"  # left open in T-ZengLiang
    MOVE_LEADERS = "move-leaders"


@dataclass(frozen=True)
class Kin:
    """Lane of a kind, and how long it is held, in seconds (least, most)."""

    lane: Lane
    hold_s: tuple[float, float]


KINDS: dict[Kind, Kin] = {
    Kind.KILL_BROKER: Kin(Lane.BROKERS, (1.0, 6.0)),
    Kind.KILL_COORDINATOR: Kin(Lane.BROKERS, (1.0, 6.0)),
    Kind.KILL_LEADER: Kin(Lane.BROKERS, (1.0, 6.0)),
    Kind.LOSE_BROKER: Kin(Lane.BROKERS, (2.0, 6.0)),
    Kind.STALL_BROKER: Kin(Lane.BROKERS, (2.0, 8.0)),
    Kind.STALE_LEADER: Kin(Lane.BROKERS, (4.0, 9.0)),
    Kind.CUT_BROKERS: Kin(Lane.BROKERS, (3.0, 8.0)),
    Kind.CUT_CLIENTS: Kin(Lane.BROKERS, (3.0, 8.0)),
    Kind.TWO_BROKERS_GONE: Kin(Lane.BROKERS, (2.0, 6.0)),
    Kind.ROLLING_RESTART: Kin(Lane.BROKERS, (0.0, 0.0)),
    Kind.KILL_PROCESS: Kin(Lane.PROCESSES, (0.0, 0.0)),
    Kind.KILL_PROCESS_LONG: Kin(Lane.PROCESSES, (4.0, 8.0)),
    Kind.STOP_PROCESS: Kin(Lane.PROCESSES, (0.0, 2.0)),
    Kind.KILL_IN_RESTORE: Kin(Lane.PROCESSES, (0.0, 0.0)),
    Kind.ZOMBIE: Kin(Lane.PROCESSES, (11.0, 14.0)),
    Kind.REPLACED: Kin(Lane.PROCESSES, (11.0, 14.0)),
    Kind.MUTE: Kin(Lane.WIRES, (1.0, 7.0)),
    Kind.MUTE_REQUESTS: Kin(Lane.WIRES, (1.0, 7.0)),
    Kind.MUTE_ANSWERS: Kin(Lane.WIRES, (1.0, 7.0)),
    Kind.DELAY: Kin(Lane.WIRES, (3.0, 6.0)),
    Kind.CUT_BEFORE_BROKER: Kin(Lane.WIRES, (1.0, 4.0)),
    Kind.CUT_AFTER_BROKER: Kin(Lane.WIRES, (1.0, 4.0)),
    Kind.LATE_COMMIT: Kin(Lane.WIRES, (5.0, 7.0)),
    Kind.FOREIGN_TRANSACTION: Kin(Lane.WIRES, (3.0, 10.0)),
    Kind.MOVE_LEADERS: Kin(Lane.WIRES, (0.5, 1.5)),
}


@dataclass(frozen=True)
class Fault:
    """One fault as drawn. `begin_s` is in seconds after the run's begin; it is held for `hold_s` seconds.

    `pick` (0 ≤ pick < 65,536) chooses among whatever there is to hit when it begins. With `snapshot` full snapshots
    are asked for just before.
    """

    number: int
    kind: Kind
    begin_s: float
    hold_s: float
    pick: int
    snapshot: bool

    @property
    def lane(self) -> Lane:
        return KINDS[self.kind].lane

    @property
    def end_s(self) -> float:
        return self.begin_s + self.hold_s


def draw(seed: int, seconds: float, kinds: Collection[Kind] = tuple(Kind)) -> list[Fault]:
    """All faults of a run of that many seconds, by begin; each ends before the run does."""
    faults: list[Fault] = []
    for lane in Lane:
        mine = [kind for kind in Kind if KINDS[kind].lane is lane and kind in kinds]
        faults += _draw_lane(random.Random(f"{seed}-{lane}"), seconds, mine)
    ordered = sorted(faults, key=lambda fault: (fault.begin_s, fault.kind))
    return [
        Fault(number, one.kind, one.begin_s, one.hold_s, one.pick, one.snapshot)
        for number, one in enumerate(ordered)
    ]


def _draw_lane(dice: random.Random, seconds: float, kinds: Sequence[Kind]) -> list[Fault]:
    faults: list[Fault] = []
    deck: list[Kind] = []
    at_s = WARM_UP_S
    while kinds:
        deck = deck or dice.sample(kinds, len(kinds))
        kind = deck.pop()
        at_s += dice.uniform(*GAP_S)
        hold_s = dice.uniform(*KINDS[kind].hold_s)
        pick, snapshot = dice.randrange(PICK_MAX), dice.random() < 0.5
        if at_s + hold_s > seconds:
            break
        faults.append(Fault(0, kind, round(at_s, 3), round(hold_s, 3), pick, snapshot))
        at_s += hold_s
    return faults
