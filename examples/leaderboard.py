"""A leaderboard: scores in, totals out, and a FastAPI app that answers from the committed state.

    uvicorn examples.leaderboard:api

Settings come from the environment (SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS). An answer needs all partitions, so run
only one process. A second one would get half of the partitions, and both would answer 503.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from heapq import merge
from itertools import islice
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from msgspec import Struct

from snapreplay import (
    App,
    MapState,
    MapView,
    Out,
    PartitionNotLive,
    Record,
    Service,
    Stores,
    Topic,
    json,
    running,
    utf8,
)

PARTITIONS = 4


class Score(Struct):
    points: int


class Players(Stores):
    def __init__(self) -> None:
        self.totals = MapState(str, int, default=int)
        self.ranking = MapState(tuple[int, str], bool, ordered=True)  # -total, player: best first


scores = Topic("scores", key=utf8, value=json(Score))
totals = Topic("totals", key=utf8, value=json(int))
app = App("leaderboard", inputs=[scores], outputs=[totals], state=Players)


@app.handler(scores)
def on_score(record: Record[str, Score], state: Players, out: Out) -> None:
    player = record.key
    state.ranking.pop((-state.totals[player], player), False)
    state.totals[player] += record.value.points
    state.ranking[-state.totals[player], player] = True
    out.send(totals, key=player, value=state.totals[player])


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncGenerator[None]:
    async with running(app) as service:
        api.state.service = service
        yield


api = FastAPI(lifespan=lifespan)


def rankings() -> list[MapView[tuple[int, str], bool]]:
    service: Service[Players] = api.state.service
    return [service.view(p).of(lambda state: state.ranking) for p in range(PARTITIONS)]


def total_of(player: str) -> int | None:
    service: Service[Players] = api.state.service
    views = [service.view(p).of(lambda state: state.totals) for p in range(PARTITIONS)]
    return next((view[player] for view in views if player in view), None)


# `async def`: a view belongs to the event loop that runs the handlers.


@api.get("/top")
async def get_top(n: Annotated[int, Query(ge=1, le=1000)] = 10) -> list[tuple[str, int]]:
    best = merge(*(ranking.range() for ranking in rankings()))
    return [(player, -negated) for (negated, player), _ in islice(best, n)]


@api.get("/players/{player}")
async def get_player(player: str) -> dict[str, int]:
    total = total_of(player)
    if total is None:
        raise HTTPException(404, f"{player} has no score")
    better = sum(1 for ranking in rankings() for _ in ranking.range(end=(-total,)))
    return {"total": total, "rank": better + 1}


@api.exception_handler(PartitionNotLive)
async def not_live(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})
