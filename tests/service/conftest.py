"""A stage on the session's broker: `await stage(app)` has made its topics and its genesis."""

import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snapreplay.app.app import App
from snapreplay.service.live import pace
from snapreplay.service.runtime import pulse
from tests.support.child import Family, family
from tests.support.stage import Stage, past
from tests.support.wire import refusing

__all__ = ["past"]


@pytest.fixture(autouse=True)
def attentive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle partition looks for news every 10 ms, not 100: tests ask it for much in a short time. In virtual time
    more looks only take longer. No leader is stale here, and a log that seems too short is. A service in the process of
    a test pauses when the machine is busy: it does not doubt its inputs then."""
    if "bench" not in request.fixturenames:
        monkeypatch.setattr(pace, "IDLE_POLL_MS", 10)
        monkeypatch.setattr("snapreplay.service.topics.reading.ASK_AGAIN_SECONDS", 0.02)
    if "stage" in request.fixturenames:
        monkeypatch.setattr(pulse, "STOOD_STILL_SECONDS", math.inf)


@pytest.fixture
def stage(broker: Any) -> Callable[..., Awaitable[Stage]]:
    async def make(app: App[Any], partitions: int = 1, **tables: Any) -> Stage:
        return await Stage(broker.bootstrap_servers, app, partitions, **tables).prepare()

    return make


@pytest.fixture
def children(broker: Any, tmp_path: Path) -> Iterator[Family]:
    """`children.start(kind, app_id, **settings)` runs a service as a process of its own."""
    with family(broker.bootstrap_servers, tmp_path) as started:
        yield started


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections as long as the test lasts."""
    with refusing() as port:
        yield port
