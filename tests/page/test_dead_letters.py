"""The dead letters on the page: their reason, their record, and the way back, in a real browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.page.looking import looked_at, tab
from tests.support import apps

pytestmark = pytest.mark.kafka


async def test_a_dead_letter_is_read_and_sent_back(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """The handler is not fixed, so the record fails again: the old letter was sent back, the new one was not."""
    here = await stage(apps.ledger(unique("letters")), errors={"policy": "dead_letter"})
    child = children.start("poisoned", here.app.app_id, errors__policy="dead_letter")
    await asyncio.to_thread(child.wait_live)
    await page.goto(child.url)
    await tab(page, "Dead letters")
    letters = page.get_by_role("region", name="Dead letters", exact=True)
    await expect(letters).to_contain_text("None. Every record was processed.")
    await here.send([("0:k", {"amount": 1, "poison": True})])
    letter = letters.get_by_role("article")
    await expect(letter).to_have_count(1)
    await expect(letter).to_contain_text("ValueError")
    await letter.get_by_text("Record", exact=True).click()
    await expect(letter).to_contain_text("poison")
    await looked_at(page)
    await letters.get_by_role("button", name="Redrive").click()
    await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await expect(page.locator(".notice")).to_contain_text("Redrive: succeeded 1 record sent back")
    await expect(letter).to_have_count(2)
    await expect(letters.locator(".badge.past")).to_have_text("– sent back")
    await tab(page, "Overview")
    await expect(page.get_by_role("region", name="Topology")).to_contain_text("2 since the processes started")
