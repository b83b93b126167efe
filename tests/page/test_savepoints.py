"""Savepoints and cancelled operations on the page of a process, in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page, expect

from snapreplay.api.server import HttpServer
from snapreplay.service.recovery.examine import Examiner
from tests.page.looking import looked_at, says
from tests.support import apps

pytestmark = pytest.mark.kafka


@pytest.fixture
async def shown(stage: Any, unique: Any, page: Page) -> AsyncIterator[Page]:
    """The page of a process that is healthy."""
    here = await stage(apps.ledger(unique("kept")))
    await here.feed(20)
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append)) as service:
        await here.all_processed(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        yield page


async def test_a_savepoint_is_kept_and_dropped(shown: Page) -> None:
    """Its name has to be typed before it is deleted. A name that is taken is refused with the reason."""
    region, dialog = shown.get_by_role("region", name="Savepoints", exact=True), shown.get_by_role("dialog")
    await region.get_by_role("button", name="Read them from Kafka").click()
    await expect(region).to_contain_text("None.")
    for state in ("succeeded", "failed has a savepoint before-42 already"):
        await region.get_by_role("button", name="Keep a savepoint").click()
        await dialog.get_by_label("Its name").fill("before-42")
        await dialog.get_by_label("Why").fill("deploy <b>42</b>")
        await dialog.get_by_role("button", name="Keep it").click()
        await expect(shown.locator(".notice")).to_contain_text(re.compile(state.replace(" ", ".* ", 1)))
        await shown.get_by_role("button", name="Close this message").click()
    await region.get_by_role("button", name="Read them again").click()
    await expect(region.get_by_role("row").nth(1)).to_contain_text("deploy <b>42</b>")
    await expect(region.get_by_role("row").nth(1)).to_contain_text("usable")
    await looked_at(shown, "savepoints", "#savepoints")
    await region.get_by_role("button", name="Drop before-42").click()
    await dialog.get_by_label("Type its name").fill("before-41")
    await dialog.get_by_role("button", name="Drop it").click()
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Type its name").fill("before-42")
    await dialog.get_by_role("button", name="Drop it").click()
    await expect(shown.locator(".notice")).to_contain_text("Drop of savepoint before-42: succeeded")
    await region.get_by_role("button", name="Read them again").click()
    await expect(region).to_contain_text("None.")


async def test_an_operation_is_cancelled_by_its_button(shown: Page, monkeypatch: Any) -> None:
    """The button is there as long as it can be. The operation says that it was cancelled."""

    async def never(*_: Any) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(Examiner, "examine_beside_owner", never)
    await shown.get_by_role("button", name="Details of partition 0").click()
    await shown.locator("#partition-0-detail").get_by_role("button", name="Drill").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Drill").click()
    operations = shown.get_by_role("region", name="Operations", exact=True)
    await operations.get_by_role("button", name="Cancel the drill").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Cancel the drill").click()
    await expect(shown.locator(".notice")).to_contain_text("Cancel of the drill: cancelled")
    await expect(operations).to_contain_text("cancelled by somebody at 127.0.0.1")
    await expect(operations.get_by_role("button", name="Cancel the drill")).to_have_count(0)
    await looked_at(shown, "cancelled")
