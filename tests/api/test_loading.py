"""Probes are answered before the application is imported; everything else waits for it."""

import asyncio
import threading
import time

import httpx2
import pytest

from snapreplay.api.app import create_app
from snapreplay.api.application import LOAD_AFTER_SECONDS, Loading
from snapreplay.api.probing import Probes
from tests.api.test_connections import served_here
from tests.support.deadlines import scaled
from tests.support.fake_control import LIVE, NOW, FakeControl, Local
from tests.support.served import served
from tests.support.waiting import eventually


async def test_probes_do_not_wait_for_the_application():
    """Nor does a `HEAD`. What might be refused waits, and so does `/startupz`. It is made once, for all that wait."""
    control, made, may_end = FakeControl([LIVE]), [], threading.Event()

    def make():
        made.append(1)
        assert may_end.wait(scaled(60))
        return create_app(Local(control), now=lambda: NOW)

    app = Probes(Loading(make), lambda: [control.document()])
    async with served_here(app) as (url, _), httpx2.AsyncClient(base_url=url, trust_env=False) as client:
        late = ((b"", "/api/v1"), (b"a body", "/healthz"), (b"", "/startupz"))
        waiting = [
            asyncio.create_task(client.request("GET", path, content=body, timeout=scaled(60))) for body, path in late
        ]
        for path in ("/healthz", "/readyz?verbose=1"):
            early = await client.get(path)
            assert (early.status_code, early.json()["status"]) == (200, "ok")
            assert (await client.head(path)).headers["content-length"] == str(len(early.content))
        assert not any(each.done() for each in waiting)
        may_end.set()
        assert [(await each).status_code for each in waiting] == [200] * 3
    assert made == [1]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_is_answered_as_by_the_application(path):
    """The same document, the same code, with any content."""
    control = FakeControl()
    app = create_app(Local(control), now=lambda: NOW)
    async with (
        served_here(Probes(app, lambda: [control.document()])) as (plain, _),
        served_here(app) as (whole, _),
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        answers = [await client.get(url + path) for url in (plain, whole)]
    first, second = ((each.status_code, each.headers["content-type"], each.json()) for each in answers)
    assert first == second


async def test_the_application_is_loaded_after_the_delay_without_a_request(monkeypatch):
    """A quick restore goes first."""
    loaded_at: list[float] = []

    async def load(_self):
        loaded_at.append(time.monotonic())

    monkeypatch.setattr(Loading, "load", load)
    began = time.monotonic()
    async with served(FakeControl()):
        await asyncio.to_thread(eventually, lambda: loaded_at, "the web framework is loaded")
    assert loaded_at[0] - began >= LOAD_AFTER_SECONDS
