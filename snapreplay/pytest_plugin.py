"""Fixtures for tests of an app on a real broker. Installed with snapreplay; nothing heavy is imported until a test asks
for one of them.

    async def test_ledger(real_harness):
        async with real_harness(app) as harness:
            await harness.feed(payments, key="ada", value={"amount": 5})
            await harness.caught_up()
            await harness.restart()
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from snapreplay.testing.real import Reachable, RealHarness

BOOTSTRAP_VARIABLE = "SNAPREPLAY_TEST_BOOTSTRAP_SERVERS"


class _Given:
    """A cluster of one's own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture(scope="session")
def snapreplay_broker() -> Iterator[Reachable]:
    """Provide a local broker for the whole session, or the cluster that SNAPREPLAY_TEST_BOOTSTRAP_SERVERS names."""
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield _Given(given)
        return
    from snapreplay.testing.real import broker

    with broker() as local:
        yield local
        local.kill()  # its data is not needed, and an orderly stop takes longer


@pytest.fixture
def real_harness(snapreplay_broker: Reachable) -> Iterator[Callable[..., RealHarness[Any]]]:
    """Provide `real_harness(app, partitions=1, processes=1, …)`: a RealHarness with an app id and topics of this test's
    own. What the test leaves running is killed."""
    from snapreplay.testing.real import RealHarness

    made: list[RealHarness[Any]] = []

    def make(app: Any, **options: Any) -> RealHarness[Any]:
        options.setdefault("prefix", f"test-{uuid.uuid4().hex[:8]}-")
        made.append(RealHarness(app, snapreplay_broker, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
