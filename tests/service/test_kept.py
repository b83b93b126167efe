"""Savepoints of a running service on a real broker, over HTTP."""

import asyncio

import httpx2
import pytest

from snapreplay.api.server import HttpServer
from snapreplay.service.decisions import savepoints
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.stage import until

pytestmark = pytest.mark.whole  # `make test` asks by commands: test_savepoint_commands.py


@pytest.fixture
async def served(stage, unique):
    """A service with two partitions, and a client of it."""
    here = await stage(apps.ledger(unique("kept")), partitions=2)
    await here.feed(60)
    async with here.running(http=HttpServer()) as service:
        await here.all_processed(service)
        await here.decided()
        url = "http://{}:{}".format(*service.http_address)
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=scaled(20)) as client:
            yield here, service, client


async def ended(service, response):
    assert response.status_code == 202, response.text
    operation = response.json()["id"]
    await until(lambda: service.control.operation(operation).state != "running", "the end")
    return service.control.operation(operation)


async def test_a_savepoint_is_kept_listed_and_dropped_over_http(served):
    """It has who asked and why. The same name again fails with the reason; so does a drop of nothing; processing
    continues."""
    here, service, client = served
    assert (await client.get("/api/v1/savepoints")).json()["items"] == []
    asked = {"name": "before-42", "reason": "deploy 42"}
    kept = await ended(service, await client.post("/api/v1/savepoints", json=asked))
    assert (kept.kind, kept.state, kept.reason, len(kept.parts)) == ("savepoint", "succeeded", "before-42", 2)
    (found,) = (await client.get("/api/v1/savepoints")).json()["items"]
    assert (found["savepoint"], found["usable"], found["reason"]) == ("before-42", True, "deploy 42")
    assert found["by"] == "somebody at 127.0.0.1"
    assert sum(part["positions"][here.input] for part in found["partitions"]) == 60
    again = await ended(service, await client.post("/api/v1/savepoints", json=asked))
    assert again.state == "failed"
    assert "has a savepoint before-42 already" in again.parts[0].detail
    assert (await client.post("/api/v1/savepoints", json={"name": "a b"})).status_code == 422
    await here.feed(20)
    assert (await ended(service, await client.delete("/api/v1/savepoints/before-42"))).state == "succeeded"
    assert (await client.get("/api/v1/savepoints")).json()["items"] == []
    again = await ended(service, await client.delete("/api/v1/savepoints/before-42"))
    assert (again.state, again.kind) == ("failed", "savepoint-drop")
    assert "no savepoint before-42" in again.parts[0].detail
    await here.assert_exactly_once(service)


async def test_a_savepoint_that_is_cancelled_is_dropped(served, monkeypatch):
    """What was kept stays until then, and cannot be used."""
    _, service, client = served
    keep, kept = savepoints._keep, asyncio.Event()

    async def once(context, *given):
        if kept.is_set():
            await asyncio.sleep(3600)
        await keep(context, *given)
        kept.set()

    with monkeypatch.context() as patched:
        patched.setattr(savepoints, "_keep", once)
        begun = (await client.post("/api/v1/savepoints", json={"name": "half"})).json()["id"]
        await until(lambda: service.control.operation(begun).parts[0].state == "running", "the first part")
        assert (await client.delete(f"/api/v1/operations/{begun}")).status_code == 202
        await until(lambda: service.control.operation(begun).state != "running", "its end")
        cancelled = service.control.operation(begun)
    details = ["it is saved, but not proven", "cancelled by somebody at 127.0.0.1"]
    assert (cancelled.state, [part.detail for part in cancelled.parts]) == ("cancelled", details)
    (found,) = (await service.control.savepoints()).items
    assert (found.savepoint, found.usable) == ("half", False)
    again = await ended(service, await client.post("/api/v1/savepoints", json={"name": "half"}))
    assert "has a savepoint half already" in again.parts[0].detail
    await ended(service, await client.delete("/api/v1/savepoints/half"))
    assert (await service.control.savepoints()).items == ()
