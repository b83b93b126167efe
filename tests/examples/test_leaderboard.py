"""leaderboard.py against the fold by hand."""

import random
from typing import Any
from zlib import crc32

import httpx2

from examples.leaderboard import PARTITIONS, Score, api, app, scores, totals
from snapreplay import PartitionNotLive, StoresView
from snapreplay.testing import Harness, check, record


def generate(seed: int, count: int) -> list[tuple[str, int]]:
    """(player, points): few points, so that totals meet; some are taken away again."""
    chance = random.Random(seed)
    return [(f"player-{int(chance.paretovariate(0.7)) % 150}", chance.choice([-2, 1, 1, 2, 5])) for _ in range(count)]


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


class Partitions:
    """Stands for the service: the web app asks it for views, which are real."""

    def __init__(self) -> None:
        self.harnesses = [Harness(app) for _ in range(PARTITIONS)]
        self.live = True

    def view(self, partition: int) -> StoresView[Any]:
        if not self.live:
            raise PartitionNotLive(partition, "it is loading")
        return self.harnesses[partition].view()


async def answer(client: httpx2.AsyncClient, path: str) -> tuple[int, Any]:
    found = await client.get(path)
    return found.status_code, found.json()


async def assert_as_judged(client: httpx2.AsyncClient, judge: Judge) -> None:
    assert await answer(client, "/top?n=20") == (200, judge.top(20))
    for player, total in list(judge.totals.items())[:40]:
        expected = {"total": total, "rank": judge.rank(player)}
        assert await answer(client, f"/players/{player}") == (200, expected)
    assert (await answer(client, "/players/unknown"))[0] == 404


async def test_top_and_rank_are_those_of_the_fold_by_hand() -> None:
    """Over all partitions; and without one of them, nothing is said."""
    judge, expected = Judge(), []
    service = api.state.service = Partitions()
    for player, points in generate(1, 600):
        harness = service.harnesses[crc32(player.encode()) % PARTITIONS]
        harness.feed(scores, key=player, value=Score(points))
        expected.append(judge.fold(player, points))
        assert harness.outputs(totals)[-1].value == expected[-1]
    for harness in service.harnesses:
        harness.crash()
        ranking = [(-total, player) for player, total in harness.state.totals.items()]
        assert list(harness.state.ranking) == sorted(ranking), "nothing else is remembered"
    transport = httpx2.ASGITransport(app=api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://web") as client:
        await assert_as_judged(client, judge)
        assert (await answer(client, "/top?n=-1"))[0] == 422
        service.live = False
        status, why = await answer(client, "/top")
        assert (status, "partition 0" in why["detail"]) == (503, True)


def test_it_is_deterministic() -> None:
    """With any batches and crashes."""
    samples = [record(scores, key=k, value=Score(n)) for k, n in generate(2, 30)]
    assert check(app, samples).left_out == ()
