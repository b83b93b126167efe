"""The moments when the service is killed, and the mode in which it comes back; decided by the seed alone. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Moment = Literal["processing", "writing a snapshot", "recovering", "Spark compacting", "proposals judged"]
RestoreMode = Literal["changes", "replay"]

KILLS_MAX = 50
FROM_PART, TO_PART = 0.08, 0.92  # of all records: work before the first kill, work after the last


@dataclass(frozen=True)
class Kill:
    """SIGKILL once `records` are committed, `delay_s` after the moment has come.

    The moment is at once when "processing", an answered `POST /trigger-snapshot` when "writing a
    snapshot", and the restarted process's first HTTP answer when "recovering". The last two are
    those of the last act, which the plan does not have.
    """

    records: int
    moment: Moment
    delay_s: float
    mode: RestoreMode


def plan(seed: int, kills: int, records: int) -> list[Kill]:
    """Return `kills` kills, one at a random place in each part of the input.

    With two or more, the last restart goes by replay. With three or more, some strike a recovery,
    which then starts again; never the first kill, because no restart comes before it.
    """
    chance = random.Random(seed)
    moments = _moments(chance, kills)
    step = (TO_PART - FROM_PART) * records / max(1, kills)
    places = [int(FROM_PART * records + step * (i + chance.random())) for i in range(kills)]
    return [
        Kill(
            records=place,
            moment=moment,
            delay_s=chance.uniform(0.0, _LONGEST_S[moment]),
            mode="replay" if i == kills - 1 and kills > 1 else "changes",
        )
        for i, (place, moment) in enumerate(zip(places, moments, strict=True))
    ]


_LONGEST_S: dict[Moment, float] = {"processing": 0.02, "writing a snapshot": 0.04, "recovering": 0.3}


def _moments(chance: random.Random, kills: int) -> list[Moment]:
    """Let one of every three strike a recovery, another one a snapshot. Two recoveries never follow each other, so
    that the service works between them."""
    moments: list[Moment] = ["processing"] * kills
    for begin in range(0, kills - 2, 3):
        recovering, writing = chance.sample(range(begin + 1, begin + 3), 2)
        moments[recovering] = "recovering"
        moments[writing] = "writing a snapshot"
    return moments
