"""A ledger with a past: two snapshots and batches behind each, as a clean stop leaves it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import apps
from tests.support.stage import Stage, processed, snapshot


@dataclass
class Past:
    """Batches: 1 and 2, snapshot `first` of batch 2, 4 and 5, snapshot `second` of batch 5, 7 and 8 (3 and 6
    point)."""

    here: Stage
    first: str
    second: str

    @property
    def increments(self) -> str:
        return f"{self.here.app.app_id}-increments"

    @property
    def snapshots(self) -> str:
        return f"{self.here.app.app_id}-snapshots"

    @property
    def input(self) -> str:
        return self.here.app.inputs[0].name


@pytest.fixture
def past(stage: Any, unique: Callable[[str], str]) -> Callable[..., Awaitable[Past]]:
    async def make(app: Any = None, **tables: Any) -> Past:
        here = await stage(app or apps.ledger(unique("past")), **tables)
        taken = []
        async with here.running() as service:
            for part in range(3):
                for _ in range(2):
                    await here.feed(20)
                    await processed(service, {0: here.sent})
                if part < 2:
                    taken.append(await snapshot(service))
        return Past(here, *taken)

    return make
