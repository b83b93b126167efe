"""leaderboard.py against the fold by hand; its web server, with the service in it, is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx2
import pytest

from examples.leaderboard import PARTITIONS, Score, api, app, scores, totals
from snapreplay import PartitionNotLive, Settings, StoresView, ensure_topics, init
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.testing import Harness, check, record
from tests.support.deadlines import scaled

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = scaled(60)


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
    assert (await answer(client, "/players/nobody"))[0] == 404


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
    """Whatever the batches and crashes."""
    samples = [record(scores, key=k, value=Score(n)) for k, n in generate(2, 30)]
    assert check(app, samples).left_out == ()


class WebServer:
    """`uvicorn examples.leaderboard:api`, as its user starts it."""

    def __init__(self, servers: str, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._log_path = folder / "uvicorn.log"
        self._process: asyncio.subprocess.Process | None = None
        self._environment = os.environ | {
            "SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": servers,
            "SNAPREPLAY_INSTANCE_ID": "web",
            "SNAPREPLAY_GROUP__SESSION_TIMEOUT_MS": "3000",
            "SNAPREPLAY_GROUP__HEARTBEAT_INTERVAL_MS": "200",
            "SNAPREPLAY_BATCH__RECORDS_MAX": "10",
        }

    async def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "uvicorn", "examples.leaderboard:api"),
                *("--port", str(self.port)),
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        log_path = self._log_path
        # uvicorn ends itself by the same signal when it has shut down.
        assert await self._process.wait() == -signal.SIGTERM, log_path.read_text()[-4000:]
        assert "Application shutdown complete" in log_path.read_text()


@asynccontextmanager
async def web_server(servers: str, folder: Path) -> AsyncIterator[WebServer]:
    web = WebServer(servers, folder)
    await web.start()
    try:
        yield web
    finally:
        await web.kill()


async def until_top(client: httpx2.AsyncClient, holds: Callable[[Any], bool]) -> None:
    """Wait for a list of all players; a server that does not run yet, or is not LIVE, is asked again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                status, top = await answer(client, "/top?n=1000")
            except httpx2.HTTPError:
                status, top = 0, []
            if status == 200 and holds(top):
                return
            await asyncio.sleep(0.02)  # between two questions, under the deadline


def reaching(everything: int) -> Callable[[Any], bool]:
    return lambda top: sum(total for _, total in top) >= everything


@pytest.mark.slow
@pytest.mark.kafka
async def test_a_killed_web_server(snapreplay_broker: Any, real_harness: Any, tmp_path: Path) -> None:
    """Totals once each, in order; top and ranks are those of the fold by hand."""
    servers = snapreplay_broker.bootstrap_servers
    harness = real_harness(app, prefix="")  # feeds and reads; the web server runs the app
    settings = Settings(kafka={"bootstrap.servers": servers})
    await ensure_topics(app, settings, create_inputs=PARTITIONS)
    await init(app, settings, start="earliest")
    fed, judge, chance = generate(3, 900), Judge(), random.Random(3)
    expected: dict[str, list[int]] = defaultdict(list)
    async with (
        web_server(servers, tmp_path) as web,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{web.port}", timeout=30) as client,
    ):
        for begin in range(0, len(fed), 300):
            for player, points in fed[begin : begin + 300]:
                await harness.feed(scores, key=player, value=Score(points))
                expected[player].append(judge.fold(player, points))
            some = chance.randrange(sum(judge.totals.values()))
            await until_top(client, reaching(some))
            await web.kill()
            await web.start()
        await until_top(client, lambda top: bool(top == judge.top(1000)))
        await assert_as_judged(client, judge)
        await web.stop()
    found: dict[str, list[int]] = defaultdict(list)
    for output in await harness.outputs(totals):
        found[output.key].append(output.value)
    assert found == expected
