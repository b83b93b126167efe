"""The page of a process with several apps: each has its own, and leads to the others."""

import re

import msgspec
from playwright.async_api import Page, expect

from tests.api.test_several import served
from tests.page.looking import tab
from tests.support.fake_control import FAILED


async def test_each_app_has_a_page_and_leads_to_the_others(page: Page) -> None:
    """At the same tab. A button asks the app whose page it is on."""
    async with served(of_second=msgspec.structs.replace(FAILED, partition=0)) as (first, second, _, client):
        await page.goto(str(client.base_url))
        await expect(page).to_have_url(re.compile("/apps/first/$"))
        await expect(page).to_have_title(re.compile("first"))
        await tab(page, "Snapshots")
        await page.get_by_role("link", name="second", exact=True).click()
        await expect(page).to_have_url(re.compile("/apps/second/#snapshots$"))
        await expect(page).to_have_title(re.compile("Partition 0 is down.*second"))
        await page.get_by_role("link", name="first", exact=True).click()
        await page.get_by_role("button", name="Write snapshots").click()
        await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
        await tab(page, "Operations")
        await expect(page.get_by_role("region", name="Operations", exact=True)).to_contain_text("running")
        assert first.document().operations
        assert not second.document().operations
