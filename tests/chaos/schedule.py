"""The schedule of faults, when each begins and for how long: a function of the seed and nothing else. Pure.

Three lanes run side by side, each one fault at a time: what is done to brokers, to service processes, and to the wires
between them and to the topics. A lane draws from a shuffled deck and reshuffles when it is empty, so that no kind is
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
    """The target of a fault. One fault at a time in each."""

    BROKERS = "brokers"
    PROCESSES = "processes"
    WIRES = "wires"


class Kind(StrEnum):
    """The kind of a fault, its lane, and for how long it is held, in seconds (least, most). Every kind heals
    itself."""

    lane: Lane
    hold_s: tuple[float, float]

    def __new__(cls, name: str, lane: Lane, least_s: float, most_s: float) -> Kind:
        made = str.__new__(cls, name)
        made._value_, made.lane, made.hold_s = name, lane, (least_s, most_s)
        return made

    KILL_BROKER = "kill-broker", Lane.BROKERS, 1.0, 6.0
    KILL_COORDINATOR = "kill-coordinator", Lane.BROKERS, 1.0, 6.0  # of a partition's transactions
    KILL_LEADER = "kill-leader", Lane.BROKERS, 1.0, 6.0  # of one partition of T-ZengLiang
    LOSE_BROKER = "lose-broker", Lane.BROKERS, 2.0, 6.0  # as without power: no RST, no FIN
    FREEZE_BROKER = "freeze-broker", Lane.BROKERS, 2.0, 8.0  # no answer, no RST
    STALE_LEADER = "stale-leader", Lane.BROKERS, 4.0, 9.0  # cut from its peers, not from clients
    CUT_BROKERS = "cut-brokers", Lane.BROKERS, 3.0, 8.0  # one from its peers, one way or both
    CUT_CLIENTS = "cut-clients", Lane.BROKERS, 3.0, 8.0  # one from all clients, not from its peers
    TWO_BROKERS_GONE = "two-brokers-gone", Lane.BROKERS, 2.0, 6.0
    UNCLEAN_ELECTION = "unclean-election", Lane.BROKERS, 10.0, 12.0  # an input loses its end
    ROLLING_RESTART = "rolling-restart", Lane.BROKERS, 0.0, 0.0  # SIGTERM and start, in turn

    KILL_PROCESS = "kill-process", Lane.PROCESSES, 0.0, 0.0  # started again at once
    KILL_PROCESS_LONG = "kill-process-long", Lane.PROCESSES, 4.0, 8.0  # after others took over
    STOP_PROCESS = "stop-process", Lane.PROCESSES, 0.0, 2.0  # SIGTERM, started again
    KILL_IN_RESTORE = "kill-in-restore", Lane.PROCESSES, 0.0, 0.0  # once in every phase
    ZOMBIE = "zombie", Lane.PROCESSES, 11.0, 14.0  # frozen for longer than session and transaction
    REPLACED = "replaced", Lane.PROCESSES, 11.0, 14.0  # and meanwhile somebody takes its name

    CUT = "cut", Lane.WIRES, 1.0, 7.0  # nothing passes between one process and one broker
    CUT_REQUESTS = "cut-requests", Lane.WIRES, 1.0, 7.0
    CUT_ANSWERS = "cut-answers", Lane.WIRES, 1.0, 7.0
    DELAY = "delay", Lane.WIRES, 3.0, 6.0
    RESET_BEFORE = "reset-before", Lane.WIRES, 1.0, 4.0  # the broker saw no request
    RESET_AFTER = "reset-after", Lane.WIRES, 1.0, 4.0  # the broker has done it
    LATE_COMMIT = "late-commit", Lane.WIRES, 5.0, 7.0  # EndTxn held until the next transaction
    FOREIGN_TRANSACTION = "foreign-transaction", Lane.WIRES, 3.0, 10.0  # left open in T-ZengLiang
    MOVE_LEADERS = "move-leaders", Lane.WIRES, 0.5, 1.5


@dataclass(frozen=True)
class Fault:
    """One fault as drawn. `begin_s` is in seconds after the run's begin; it is held for `hold_s` seconds.

    `pick` (0 ≤ pick < 65,536) chooses among what there is to hit when it begins. With `snapshot` full snapshots
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
        return self.kind.lane


def draw(seed: int, seconds: float, kinds: Collection[Kind] = tuple(Kind), hold_s: float | None = None) -> list[Fault]:
    """All faults of a run of that many seconds, by begin; each ends before the run does. `hold_s`: each is held for so
    long, for every kind."""
    faults: list[Fault] = []
    for lane in Lane:
        mine = [kind for kind in Kind if kind.lane is lane and kind in kinds]
        faults += _draw_lane(random.Random(f"{seed}-{lane}"), seconds, mine, hold_s)
    ordered = sorted(faults, key=lambda fault: (fault.begin_s, fault.kind))
    return [
        Fault(number, one.kind, one.begin_s, one.hold_s, one.pick, one.snapshot) for number, one in enumerate(ordered)
    ]


def _draw_lane(dice: random.Random, seconds: float, kinds: Sequence[Kind], held_s: float | None) -> list[Fault]:
    faults: list[Fault] = []
    deck: list[Kind] = []
    at_s = WARM_UP_S
    while kinds:
        deck = deck or dice.sample(kinds, len(kinds))
        kind = deck.pop()
        at_s += dice.uniform(*GAP_S)
        hold_s = dice.uniform(*(kind.hold_s if held_s is None else (held_s, held_s)))
        pick, snapshot = dice.randrange(PICK_MAX), dice.random() < 0.5
        if at_s + hold_s > seconds:
            break
        faults.append(Fault(0, kind, round(at_s, 3), round(hold_s, 3), pick, snapshot))
        at_s += hold_s
    return faults
