"""Entries of a running service, asked for by key and in pages, over HTTP and by the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay import json as as_json
from snapreplay.api.server import HttpServer
from tests.support.deadlines import scaled

pytestmark = pytest.mark.kafka


class Hold(msgspec.Struct):
    quantity: int
    note: bytes = b"\xff"


KEYS = ["ada", "", "ä/ö ?#%2F", ".", "..", "a+b", "\x00", '["tea",1]', "x" * 2000]


def shop(name):
    """Each record goes under its key, and under a tuple of the key and its offset; ints and bytes count them."""
    orders = Topic(f"orders-{name}", value=as_json(int))
    app = App(
        name,
        inputs=[orders],
        state=lambda: Stores(
            items=MapState(str, Hold),
            holds=MapState(tuple[str, int], int, ordered=True),
            counts=MapState(int, int),
            raw=MapState(bytes, int),
        ),
    )

    @app.handler(orders)
    def on_order(record, state, out):
        state.items[record.key] = Hold(record.value)
        state.holds[(record.key, record.offset)] = record.value
        state.counts[-record.offset] = record.value
        state.raw[record.key.encode()] = record.value

    return app


class Asking:
    """Asks one service over HTTP."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=scaled(10))

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def get(self, path: str, **query: Any) -> tuple[int, Any]:
        response = await self.client.get(f"/api/v1/state/{path}", params=query)
        return response.status_code, response.json()

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        name, *rest = arguments
        called = [sys.executable, "-m", "snapreplay.api.cli", name, "--url", self.url, *rest]
        done = await asyncio.to_thread(subprocess.run, called, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
async def asking(stage, unique):
    here = await stage(shop(unique("shop")))
    async with here.started(http=HttpServer()) as service:
        await service.wait_live(scaled(40))
        async with Asking(service.http_address[1]) as asking:
            yield here, service, asking


async def test_a_key_is_looked_up_as_it_was_written(asking):
    """Whatever is in it; with the batch, the positions, and who has answered."""
    here, service, asking = asking
    await here.send([(key, number) for number, key in enumerate(KEYS)])
    await here.all_processed(service)
    for number, key in enumerate(KEYS):
        escaped = quote(key, safe="").replace(".", "%2E")
        status, found = await asking.get(f"items/{escaped}")
        assert status == 200, found
        (item,) = found["items"]
        assert item["value"] == {"quantity": number, "note": {"base64": "/w=="}}
        assert (item["partition"], item["answered_by"], found["key"]) == (0, "owner", key)
        assert item["positions"] == {here.input: len(KEYS)}


async def test_every_kind_of_key_by_the_commands(asking):
    """What `scan` prints as a key is what `get` takes, for each kind of key, in text and in JSON."""
    here, service, asking = asking
    await here.send([("tea", 5), ("rum", 6), ("tea", 7)])
    await here.all_processed(service)
    code, out, err = await asking.command("scan", "holds")
    assert (code, out) == (0, '0  ["rum", 1] → 6\n0  ["tea", 0] → 5\n0  ["tea", 2] → 7\n'), err
    for store in ("items", "holds", "counts", "raw"):
        code, out, err = await asking.command("scan", store, "-o", "json")
        entries = [json.loads(line) for line in out.splitlines()]
        assert (code, len(entries)) == (0, 2 if store in ("items", "raw") else 3), err
        for entry in entries[:2]:
            key = entry["key"] if isinstance(entry["key"], str) else json.dumps(entry["key"])
            code, out, err = await asking.command("get", "-o", "json", store, "--", key)
            assert code == 0, err
            assert json.loads(out)["items"][0]["value"] == entry["value"]
    code, _, err = await asking.command("get", "items", "gin")
    assert (code, "does not have the key" in err) == (2, True)
