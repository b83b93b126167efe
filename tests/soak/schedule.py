"""The schedule of kills, drawn from a seed."""

import random
from typing import NamedTuple

FIRST_S = 20.0
"""Both processes are LIVE and have worked before the first kill."""
LAST_S = 15.0
"""No kill in the last seconds: what comes back must have time to work."""
PAUSE_S = (15.0, 40.0)
DOWN_S = (0.5, 8.0)
"""Shorter and longer than the session timeout: the same process comes back, or the other one takes over."""
STEADY_EVERY_S = 300.0


class Kill(NamedTuple):
    """Process `who` (0 or 1) is killed `at_s` seconds after the start, and started again `down_s` later."""

    at_s: float
    who: int
    down_s: float


def draw(seed: int, seconds: float, every_s: float | None = None) -> list[Kill]:
    """Process 0 is killed about twice a minute; process 1 lives for five minutes, so that a slope can be seen.

    `every_s`: there is a kill each time so many seconds have passed, and one process lives at any time.
    """
    dice = random.Random(seed)
    kills: list[Kill] = []
    at_s, steady_until = FIRST_S, STEADY_EVERY_S
    while at_s < seconds - LAST_S:
        down_s = dice.uniform(*DOWN_S)
        is_due = at_s > steady_until
        if every_s is None or not is_due:
            kills.append(Kill(at_s, 0, down_s))
        if is_due:
            kills.append(Kill(at_s, 1, dice.uniform(*DOWN_S)))
            steady_until += STEADY_EVERY_S
        at_s += every_s or down_s + dice.uniform(*PAUSE_S)
    return kills
