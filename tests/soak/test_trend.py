"""Tests of what is growth, and what is noise."""

from __future__ import annotations

import random

import pytest

from tests.chaos.watch import Restore
from tests.soak.sampling import Sample
from tests.soak.trend import GROWTH_MAX, WARM_UP_S, of_restores, over_lives, within_lives

USUAL = 2
RESTORE = Restore("p0.0", 0, 0, 0.0, 0.0, 1, "changes", True, False, True)


def life(leak_mib_per_minute: float, seconds: float = 300.0, incarnation: int = 0, live: int = USUAL) -> list[Sample]:
    """Every two seconds; noise of a few MiB, and much more in the warm-up."""
    dice = random.Random(5)
    samples = []
    for at in range(0, int(seconds), 2):
        warm = 40.0 * min(1.0, at / WARM_UP_S)
        rss = 60 + warm + dice.uniform(-3, 3) + leak_mib_per_minute * at / 60
        row = (float(at), "p1", incarnation, float(at), live, rss, 5, 13, 19)
        samples.append(Sample(*row, tasks=40 + dice.randrange(5)))
    return samples


def test_noise_and_warm_up_are_no_growth() -> None:
    """A process that finds its size and stays there does not grow."""
    trends = within_lives(life(0), USUAL)
    assert len(trends) == len(GROWTH_MAX)
    assert not [each for each in trends if each.grows]


def test_a_leak_is_growth() -> None:
    """Five MiB a minute are found in a life of five minutes, and only they."""
    assert [each.what for each in within_lives(life(5), USUAL) if each.grows] == ["p1.0 rss_mib"]


def test_short_lives_and_other_shares_say_nothing() -> None:
    """No slope from a minute, and none from a time with more partitions than usual."""
    assert within_lives(life(50, seconds=100), USUAL) == []
    assert within_lives(life(50, live=4), USUAL) == []


def test_a_later_life_with_more_is_growth() -> None:
    """What every new process begins with must not rise, either."""
    lives = [
        each._replace(at_s=number * 300 + each.at_s, rss_mib=each.rss_mib + rise * number)
        for number in range(4)
        for rise in (20,)
        for each in life(0, incarnation=number)
    ]
    assert [each.what for each in over_lives(lives, USUAL) if each.grows] == ["p1, life after life, rss_mib"]


@pytest.mark.parametrize(("per_restore_s", "grows"), [(0.0, False), (0.5, True)])
def test_restores_that_take_longer_and_longer_are_growth(per_restore_s: float, grows: bool) -> None:
    """The log is trimmed and the state has its size: the tenth restore takes as long as the first."""
    restores = [RESTORE._replace(at_s=n * 30.0, seconds=0.3 + n * per_restore_s) for n in range(10)]
    (trend,) = of_restores(restores)
    assert trend.grows is grows
