"""Kills are drawn, not chosen; the same seed gives the same."""

from __future__ import annotations

import itertools

from tests.soak.schedule import DOWN_S, FIRST_S, LAST_S, PAUSE_S, STEADY_EVERY_S, draw

SECONDS = 900.0


def test_a_seed_is_a_schedule() -> None:
    """What was found under a seed can be looked for again."""
    assert draw(7, SECONDS) == draw(7, SECONDS) != draw(8, SECONDS)


def test_one_process_is_killed_often_and_one_lives_long_enough_for_a_slope() -> None:
    """In every schedule the first process dies again and again, and lives of the second one last five minutes."""
    for seed in range(50):
        kills = draw(seed, SECONDS)
        often = [kill for kill in kills if kill.who == 0]
        rarely = [kill.at_s for kill in kills if kill.who == 1]
        assert len(often) > SECONDS / (PAUSE_S[1] + DOWN_S[1]) - 2, seed
        assert 1 <= len(rarely) <= 2, seed
        assert min(rarely) > STEADY_EVERY_S, seed
        assert min(kill.at_s for kill in kills) >= FIRST_S
        assert max(kill.at_s for kill in kills) < SECONDS - LAST_S


def test_a_kill_every_twenty_seconds_leaves_one_process_at_work() -> None:
    """There is always a warm copy to go on from: nobody is killed before the other one has been back for a while."""
    for seed in range(50):
        kills = draw(seed, SECONDS, every_s=20.0)
        assert [kill.at_s for kill in kills] == [FIRST_S + 20.0 * n for n in range(len(kills))]
        assert len(kills) == (SECONDS - LAST_S - FIRST_S) // 20 + 1
        assert 1 <= sum(kill.who for kill in kills) <= 2
        assert max(kill.down_s for kill in kills) <= DOWN_S[1] < 10.0


def test_nobody_is_killed_while_down() -> None:
    """Between a kill and the next one of the same process it is started, and has time to come back."""
    for seed, who in itertools.product(range(50), (0, 1)):
        own = [kill for kill in draw(seed, SECONDS) if kill.who == who]
        for one, following in itertools.pairwise(own):
            assert following.at_s >= one.at_s + one.down_s + PAUSE_S[0], seed
