"""The page opens in a real browser and says what its process says; all else of it is in `make whole`."""

import re

import msgspec
from playwright.async_api import Page, expect

from tests.page.looking import opened, says, tab
from tests.support.fake_control import FAILED, LIVE, FakeControl


async def test_the_page_says_what_is_wrong_and_what_to_do(page: Page) -> None:
    """A live partition, a failed one, and a snapshot requested by the button."""
    failed = msgspec.structs.replace(FAILED, partition=1)
    control = FakeControl([msgspec.structs.replace(LIVE, recoverable=True), failed])
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=2)
    async with opened(page, control):
        await says(page, re.compile("1 of 2 partitions is down"))
        card = page.get_by_role("article", name="Partition 1 is down")
        assert FAILED.error is not None
        await expect(card).to_contain_text(FAILED.error.kind)
        await tab(page, "Snapshots")
        await page.get_by_role("button", name="Write snapshots").click()
        await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
        await tab(page, "Operations")
        await expect(page.get_by_role("region", name="Operations", exact=True)).to_contain_text("running")
