"""Least squares, and what is growth."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

from tests.chaos.watch import Restore
from tests.soak.sampling import Sample

WARM_UP_S = 45.0
"""Caches fill, the allocator finds its size: not looked at."""
JUDGED_S = 60.0
"""A life whose rest is shorter says nothing about a slope."""
GROWTH_MAX = {"rss_mib": 16.0, "threads": 2.0, "sockets": 4.0, "files": 4.0, "tasks": 4.0}
"""What a fit may rise over a life, or from the first life of a name to its last: noise, measured, with some room."""
PER_MINUTE_MAX = {"rss_mib": 2.0, "threads": 0.5, "sockets": 1.0, "files": 1.0, "tasks": 1.0}
"""And how steeply. Growth is what is over both."""
RESTORE_GROWTH_MAX_S = 1.0


@dataclass(frozen=True)
class Trend:
    """A straight line through measurements.

    Attributes:
        what: what was measured, and of whom.
        per_minute: slope.
        rise: slope times the time from the first to the last measurement.
    """

    what: str
    count: int
    minutes: float
    mean: float
    per_minute: float
    grows: bool

    @property
    def rise(self) -> float:
        return self.per_minute * self.minutes


def line(what: str, points: Sequence[tuple[float, float]], rise_max: float, per_minute_max: float) -> Trend:
    """Lay a line through (seconds, value) points, at least two moments."""
    times, values = zip(*points, strict=True)
    minutes = (times[-1] - times[0]) / 60
    per_minute = linear_regression(times, values).slope * 60
    grows = per_minute > per_minute_max and per_minute * minutes > rise_max
    return Trend(what, len(points), minutes, fmean(values), per_minute, grows)


def within_lives(samples: Iterable[Sample], usual_live: int) -> list[Trend]:
    """Return a trend per process that lived long enough: only while it had its usual share, for each partition has
    its own clients."""
    lives: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for each in samples:
        if each.age_s >= WARM_UP_S and each.live == usual_live:
            lives[each.name, each.incarnation].append(each)
    return [
        line(
            f"{name}.{incarnation} {field}",
            [(each.age_s, getattr(each, field)) for each in life],
            GROWTH_MAX[field],
            PER_MINUTE_MAX[field],
        )
        for (name, incarnation), life in sorted(lives.items())
        if life[-1].age_s - life[0].age_s >= JUDGED_S
        for field in GROWTH_MAX
    ]


def over_lives(samples: Iterable[Sample], usual_live: int) -> list[Trend]:
    """Return a trend per name, of the last sample of each of its processes: does a later one begin with more?"""
    lasts: dict[str, dict[int, Sample]] = defaultdict(dict)
    for each in samples:
        if each.live == usual_live:
            lasts[each.name][each.incarnation] = each
    return [
        line(
            f"{name}, life after life, {field}",
            [(each.at_s, getattr(each, field)) for each in lives.values()],
            GROWTH_MAX[field],
            PER_MINUTE_MAX[field],
        )
        for name, lives in sorted(lasts.items())
        if len(lives) >= 3
        for field in GROWTH_MAX
    ]


def of_restores(restores: Sequence[Restore]) -> list[Trend]:
    if len(restores) < 3:
        return []
    points = [(each.at_s, each.seconds) for each in restores]
    return [line("restore seconds", points, RESTORE_GROWTH_MAX_S, RESTORE_GROWTH_MAX_S / 60)]
