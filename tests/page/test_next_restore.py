"""The page says what the next restore would take: a drill by its button, and an objective that no snapshot can meet."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from snapreplay.api.server import HttpServer
from tests.page.looking import looked_at, says
from tests.support import apps
from tests.support.stage import snapshot
from tests.support.tampering import damage_chunks

pytestmark = pytest.mark.kafka


async def test_a_drill_that_fails_is_a_card_until_a_later_one_succeeds(
    stage: Any, unique: Any, page: Page, monkeypatch: Any
) -> None:
    """A chunk was damaged on its way. The owner has written another snapshot when the drill is repeated."""
    here = await stage(apps.ledger(unique("drill")))
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append)) as service:
        await here.feed(100)
        await here.all_processed(service)
        with monkeypatch.context() as patched:
            damage_chunks(patched)
            await snapshot(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        await page.get_by_role("button", name="Details of partition 0").click()
        detail = page.locator("#partition-0-detail")
        await expect(detail).to_contain_text("No drill since this process became its owner.")
        await drill(page)
        card = page.get_by_role("article", name="The last drill of partition 0 has failed")
        await expect(card).to_contain_text("a recovery would fall back")
        await expect(card).to_contain_text("snapreplay drill --partition 0 --wait")
        await looked_at(page, "drill_failed")
        await page.get_by_role("button", name="Close this message").click()
        await drill(page)
        await expect(card).to_have_count(0)
        await expect(detail).to_contain_text("the same state")
        await says(page, re.compile("Healthy"))


async def test_an_objective_that_is_missed_is_a_card(stage: Any, unique: Any, page: Page) -> None:
    """It says what a restore would take, and that no snapshot helps. The partition works on."""
    here = await stage(apps.ledger(unique("objective")))
    addresses: list[Any] = []
    async with here.running(
        http=HttpServer(on_bound=addresses.append), restore={"objective_seconds": 0.001}
    ) as service:
        await here.feed(100)
        await here.all_processed(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Partition 0 would take longer to restore than restore.objective_seconds"))
        card = page.get_by_role("article", name="Partition 0 would take longer to restore")
        await expect(card).to_contain_text("No snapshot makes it short enough")
        await page.get_by_role("button", name="Details of partition 0").click()
        await expect(page.locator("#partition-0-detail")).to_contain_text(re.compile("the objective is 0.0 s.*missed"))
        await expect(page.locator(".plots").first).to_contain_text("Longest restore, predicted")
        await looked_at(page, "objective_missed")


async def drill(page: Page) -> None:
    """Press the button of partition 0, and confirm."""
    await page.locator("#partition-0-detail").get_by_role("button", name="Drill").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drill").click()
