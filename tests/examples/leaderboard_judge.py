"""A judge of leaderboard.py, without snapreplay; and seeded input for it."""

from __future__ import annotations

import random


def generate(seed: int, count: int) -> list[tuple[str, int]]:
    """(player, points): few points, so that totals meet; some are taken away again."""
    chance = random.Random(seed)
    return [
        (f"player-{int(chance.paretovariate(0.7)) % 150}", chance.choice([-2, 1, 1, 2, 5]))
        for _ in range(count)
    ]


class Judge:
    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def fold(self, player: str, points: int) -> int:
        self.totals[player] = self.totals.get(player, 0) + points
        return self.totals[player]

    def top(self, count: int) -> list[list[object]]:
        ranked = sorted(self.totals.items(), key=lambda entry: (-entry[1], entry[0]))
        return [[player, total] for player, total in ranked[:count]]

    def rank(self, player: str) -> int:
        return sorted(self.totals.values(), reverse=True).index(self.totals[player]) + 1
