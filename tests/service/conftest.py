"""A stage on the session's broker: `await stage(app)` has made its topics and its genesis."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from snapreplay.snapshots.program.app import App
from tests.support.stage import Stage


@pytest.fixture
def stage(broker: Any) -> Callable[..., Awaitable[Stage]]:
    async def make(app: App[Any], partitions: int = 1, **tables: Any) -> Stage:
        return await Stage(broker.bootstrap_servers, app, partitions, **tables).prepare()

    return make
