"""The viewer of the API's description at `/docs`, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Page, expect

from snapreplay.service.config.groups import HttpSettings
from tests.page.looking import looked_at
from tests.support.fake_control import FakeControl
from tests.support.served import served

TOKEN = "0123456789abcdef" * 4


async def test_an_operation_is_shown_and_tried(page: Page, tmp_path: Path) -> None:
    """Without the token the page says where to give it. With it each operation is listed, one is shown with its
    answers, and is tried out. Nothing comes from another host."""
    (tmp_path / "tokens").write_text(TOKEN)
    hosts: set[str | None] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    async with served(FakeControl(), HttpSettings(port=0, token_file=str(tmp_path / "tokens"))) as url:
        await page.goto(f"{url}/docs")
        await expect(page.get_by_role("status")).to_contain_text("A token is needed.")
        await page.get_by_role("link", name="the page").click()
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Show the page").click()
        await page.get_by_role("link", name="HTTP API").click()
        await expect(page).to_have_url(f"{url}/docs")
        facts = page.locator("#operations-process-get_facts")
        await facts.get_by_role("button").first.click()
        await expect(facts).to_contain_text("Name app, versions, instance and cluster.")
        await expect(facts).to_contain_text("no-token")
        await looked_at(page, "docs")
        await facts.get_by_role("button", name="Try it out").click()
        await facts.get_by_role("button", name="Execute").click()
        await expect(facts.locator(".live-responses-table")).to_contain_text('"app_id": "ledger"')
        await page.emulate_media(color_scheme="dark")
        await expect(page.locator("html")).to_have_class(re.compile("dark-mode"))
    assert hosts <= {"127.0.0.1", None}


async def test_it_works_below_a_path(page: Page) -> None:
    """A proxy may serve it there: what is tried out is asked below that path, too."""
    async with served(FakeControl()) as url:

        async def proxy(route: Any) -> None:
            await route.continue_(url=route.request.url.replace("/ledger/", "/"))

        await page.route("**/ledger/**", proxy)
        await page.goto(f"{url}/ledger/docs")
        live = page.locator("#operations-process-startup")
        await live.get_by_role("button").first.click()
        await live.get_by_role("button", name="Try it out").click()
        await live.get_by_role("button", name="Execute").click()
        await expect(live.locator(".live-responses-table")).to_contain_text('"status": "ok"')
        await expect(live.locator(".request-url")).to_contain_text("/ledger/startupz")
