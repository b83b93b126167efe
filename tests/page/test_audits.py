"""The page lets the owner of a partition audit it, and says what was found."""

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


async def test_an_audit_by_the_button_is_shown_and_its_findings_are_a_card(
    stage: Any, unique: Any, page: Page, monkeypatch: Any
) -> None:
    """A whole log is proven, and the row says so at once. A chunk that was damaged on its way is a card with check,
    topic and offset."""
    here = await stage(apps.ledger(unique("audit")))
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append)) as service:
        await here.feed(100)
        await here.all_processed(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        await page.get_by_role("button", name="Details of partition 0").click()
        detail = page.locator("#partition-0-detail")
        await audit(page)
        await expect(page.locator(".notice")).to_contain_text("Audit of partition 0: succeeded")
        await expect(detail).to_contain_text(re.compile(r"Audit \(changes\).*whole: batches 0 to \d+ are whole"))
        await expect(detail).to_contain_text(re.compile(r"Batch \d+ \(changes\)"))
        await says(page, re.compile("Healthy"))
        with monkeypatch.context() as patched:
            damage_chunks(patched)
            await snapshot(service)
        await page.get_by_role("button", name="Close this message").click()
        await audit(page)
        card = page.get_by_role("article", name="The last audit of partition 0 has findings")
        await expect(card).to_contain_text(re.compile(rf"chunks {here.snapshots} offset \d+: chunk 0 of snapshot"))
        await expect(card).to_contain_text("snapreplay drill --partition 0 --wait")
        await looked_at(page, "audit_failed")


async def audit(page: Page) -> None:
    """Press the button of partition 0, and confirm."""
    await page.locator("#partition-0-detail").get_by_role("button", name="Audit").click()
    await page.get_by_role("dialog").get_by_role("button", name="Audit").click()
