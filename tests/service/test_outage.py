"""A broker that is not there at the start, goes away later, and comes back: clear status, HTTP up, nothing lost."""

import asyncio
from typing import Any

import httpx2
import pytest

from snapreplay.api.server import HttpServer
from snapreplay.devbroker.broker import LocalBroker
from tests.support import apps, inside
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.stage import Stage, until

pytestmark = [pytest.mark.kafka, pytest.mark.whole]


@pytest.fixture
def own_broker():
    """One that this test may kill."""
    with LocalBroker() as broker:
        yield broker


async def checks(url):
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/readyz")
    return answer.status_code, {c["name"]: c for c in answer.json()["checks"]}


def url_of(service: Any) -> str:
    return "http://{}:{}".format(*service.http_address)


async def test_a_service_outlives_its_broker(own_broker, unique):
    """Started without it: HTTP says what is missing, and it goes LIVE when the broker comes. Killed while idle: not
    ready, and why; then it continues."""
    servers = own_broker.bootstrap_servers
    kafka = {"bootstrap.servers": servers, "request.timeout.ms": 2000}
    timeouts = {"fence_ms": 3000, "commit_ms": 3000}
    app = apps.ledger(unique("outage"))
    await Stage(servers, app, 2).prepare()
    here = Stage(servers, app, 2, kafka=kafka, timeouts=timeouts)
    await here.feed(100)
    await asyncio.to_thread(own_broker.kill)

    async with here.started(http=HttpServer()) as service:
        url = url_of(service)
        await until(lambda: inside.control(service).unreachable_reason, "the reason")
        code, found = await checks(url)
        assert code == 503
        assert not found["cluster"]["ok"]
        assert "no broker answers" in found["cluster"]["detail"]
        await asyncio.to_thread(own_broker.restart)
        await service.wait_live(scaled(60))
        await here.assert_exactly_once(service)

        await asyncio.to_thread(own_broker.kill)
        # It is idle: only the group notices.
        code, found = await until_async(lambda: checks(url), lambda told: servers in told[1]["member"]["detail"])
        assert (code, found["member"]["ok"]) == (503, False)
        assert "no broker answers at" in found["member"]["detail"]
        await asyncio.to_thread(own_broker.restart)
        await here.feed(100)
        await service.wait_live(scaled(60))
        await here.assert_exactly_once(service)
