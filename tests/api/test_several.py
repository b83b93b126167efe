"""HTTP of a process with several apps: each app's API below its id, and what is of the process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from snapreplay.api.server import HttpServer
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.control.counters import PartitionMetrics
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.runtime.tasks import context_of_app, current_app_id
from tests.support.deadlines import scaled
from tests.support.fake_control import FACTS, LIVE, LOADING, FakeControl

SETTINGS = HttpSettings(port=0)


class Apps(NamedTuple):
    """Two apps behind one port, and a client of it."""

    first: FakeControl
    second: FakeControl
    server: HttpServer
    client: httpx2.AsyncClient


def control_of(app_id: str, status: PartitionStatus = LIVE) -> FakeControl:
    control = FakeControl([status])
    control.service_facts = msgspec.structs.replace(FACTS, app_id=app_id, partition_count=1)
    return control


@asynccontextmanager
async def served(settings: HttpSettings = SETTINGS, of_second: PartitionStatus = LIVE) -> AsyncIterator[Apps]:
    server = HttpServer()
    first, second = control_of("first"), control_of("second", of_second)
    paths = server.share(["first", "second"])
    await server.serve(first, settings, paths[0])
    address = await server.serve(second, settings, paths[1])
    options: dict[str, Any] = {"base_url": address.url, "trust_env": False, "timeout": scaled(20)}
    try:
        async with httpx2.AsyncClient(**options) as client:
            yield Apps(first, second, server, client)
    finally:
        for path in paths:
            await server.close(path=path)


async def test_each_app_has_its_api_below_its_id() -> None:
    """Status, commands, problems and description; an operation of one is none of the other."""
    async with served() as (first, second, _, client):
        for app_id in ("first", "second"):
            below = f"/apps/{app_id}"
            assert (await client.get(f"{below}/api/v1")).json()["app_id"] == app_id
            assert (await client.get(f"{below}/openapi.json")).json()["servers"] == [{"url": below}]
            unknown = await client.get(f"{below}/api/v1/partitions/99")
            assert (unknown.status_code, unknown.json()["instance"]) == (404, f"{below}/api/v1/partitions/99")
            assert "snapreplay" in (await client.get(f"{below}/")).text
        begun = await client.post("/apps/second/trigger-snapshot", json={})
        assert begun.status_code == 202
        assert (await client.get(begun.headers["Location"])).json()["id"] == begun.json()["id"]
        assert second.document().operations
        assert not first.document().operations


async def test_a_guard_stands_before_each_app_and_names_the_whole_path() -> None:
    async with served() as (*_, client):
        refused = await client.post("/apps/first/trigger-snapshot", json={}, headers={"Origin": "http://evil.example"})
    assert (refused.status_code, refused.json()["instance"]) == (403, "/apps/first/trigger-snapshot")


@pytest.mark.parametrize(
    "path",
    ["/restore-status", "/api/v1", "/openapi.json", "/apps/third/api/v1", "/apps/third", "/apps/", "/apps/first/../x"],
)
async def test_a_path_that_names_no_app_says_which_there_are(path: str) -> None:
    async with served() as (*_, client):
        answer = await client.get(path)
    assert answer.status_code == 404
    problem = answer.json()
    assert problem["type"] == "urn:snapreplay:problem:unknown-app"
    assert "/apps/first, /apps/second" in problem["hint"]


async def test_probes_speak_of_all_apps() -> None:
    """The process is ready when all are, and to be killed when one is; each check names its app."""
    async with served(of_second=msgspec.structs.replace(LOADING, partition=0)) as (*_, client):
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert [(each["name"], each["ok"]) for each in answer.json()["checks"]] == [
            ("first: partition 0", True),
            ("second: partition 0", False),
        ]
        assert (await client.get("/apps/first/readyz")).status_code == 200
        started = await client.get("/startupz")
        assert started.json()["checks"][0]["name"] == "http"


async def test_metrics_of_all_are_in_one_document() -> None:
    """Each family once, with the samples of both apps; below an app only its own."""
    for app_id in ("first", "second"):
        PartitionMetrics(app_id, 0).batch_committed(0.1)
    async with served() as (*_, client):
        whole = families((await client.get("/metrics")).text)
        own = families((await client.get("/apps/first/metrics")).text)
    for name in ("snapreplay_ready", "snapreplay_batches", "snapreplay_paused"):
        assert {"first", "second"} <= apps_in(whole[name])
        assert apps_in(own[name]) == {"first"}


async def test_the_apps_are_listed_and_the_first_page_is_shown() -> None:
    async with served() as (*_, client):
        listed = (await client.get("/apps")).json()["items"]
        assert listed == [{"app_id": each, "path": f"/apps/{each}/"} for each in ("first", "second")]
        for path, location in (("/", "apps/first/"), ("/apps/second", "second/")):
            shown = await client.get(path)
            assert (shown.status_code, shown.headers["Location"]) == (307, location)


async def test_a_method_that_the_front_does_not_allow_has_a_hint_that_helps() -> None:
    async with served() as (*_, client):
        refused = await client.post("/metrics")
        assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")
        method, path = refused.json()["hint"].split()[:2]
        assert (await client.request(method, path)).status_code == 200


async def test_the_port_is_of_no_app() -> None:
    """Each app calls from its own context; the port and its server belong to all."""
    apps_at_bound: list[str] = []
    server = HttpServer(on_bound=lambda _: apps_at_bound.append(current_app_id()))
    paths = server.share(["first", "second"])
    for app_id, path in zip(("first", "second"), paths, strict=True):
        serving = server.serve(control_of(app_id), SETTINGS, path)
        await asyncio.create_task(serving, context=context_of_app(app_id))
    for path in paths:
        await server.close(path=path)
    assert apps_at_bound == [""]


async def test_a_token_is_needed_for_everything_but_probes_and_pages(tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    (tmp_path / "tokens").write_text(token)
    settings = HttpSettings(port=0, token_file=str(tmp_path / "tokens"))
    async with served(settings) as (*_, client):
        for path, code in (("/healthz", 200), ("/", 307), ("/apps/first/", 200), ("/apps", 401), ("/metrics", 401)):
            assert (await client.get(path)).status_code == code, path
        for path in ("/apps/first/api/v1", "/apps/first/restore-status", "/apps/first/metrics"):
            assert (await client.get(path)).status_code == 401, path
            known = await client.get(path, headers={"Authorization": f"Bearer {token}"})
            assert known.status_code == 200


async def test_an_app_that_has_stopped_is_shown_until_the_last_one_has() -> None:
    """Its followers hear that it ended; the port is closed by the last one."""
    async with served() as (_, _, server, client):
        async with client.stream("GET", "/apps/first/api/v1/events") as followed:
            await server.close(3.0, "/apps/first")
            said = "".join([part async for part in followed.aiter_text()])
        assert "event: bye" in said
        assert (await client.get("/apps/second/api/v1")).status_code == 200
        await server.close(3.0, "/apps/second")
        with pytest.raises(httpx2.TransportError):
            await client.get("/apps/second/api/v1")


def families(text: str) -> dict[str, Any]:
    found = [*text_string_to_metric_families(text)]
    names = [each.name for each in found]
    assert len(names) == len(set(names))
    return dict(zip(names, found, strict=True))


def apps_in(family: Any) -> set[str]:
    return {each.labels["app"] for each in family.samples}
