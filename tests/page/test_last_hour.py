"""The last hour on the page, in a real browser: also what was before the page was opened."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.page.looking import details, looked_at, says
from tests.support import apps
from tests.support.child import Child

pytestmark = pytest.mark.kafka
SOME = re.compile(r"Records per second: now .*, at most [1-9]")


def columns(child: Child) -> Any:
    """Ask what this process alone remembers."""
    return child.get("/api/v1/last-hour")


def plot(page: Page, of: str = ".plots") -> Locator:
    """The plot of records per second."""
    return page.locator(of).get_by_role("img").first


async def test_the_page_has_what_was_before_it_was_opened(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """Records are processed, a process is killed, its partitions are restored elsewhere, and nothing happens any more.
    Then somebody opens the page of the other process: it has all of that, also what the dead process did."""
    here = await stage(apps.ledger(unique("hour")), partitions=4)
    one, two = (children.start("ledger", here.app.app_id, instance_id=name) for name in ("one", "two"))
    for child in (one, two):
        await asyncio.to_thread(child.wait_live, 2)
    theirs = min(one.live())
    await asyncio.to_thread(two.until, lambda: columns(two)["partitions"][-1:] == [4], "a row of all partitions")
    await here.feed(400)
    await asyncio.to_thread(two.until, lambda: one.processed() + two.processed() == 400, "all processed")
    await asyncio.to_thread(two.until, lambda: any(columns(two)["records_per_second"]), "a row of it")
    one.kill()
    await asyncio.to_thread(two.wait_live, 4)
    await asyncio.to_thread(two.until, lambda: columns(two)["live"][-1:] < [4], "a row of the restores")
    await asyncio.to_thread(two.until, lambda: columns(two)["live"][-1:] == [4], "a row after it")

    await page.goto(two.url)
    await says(page, re.compile("Healthy"))
    await expect(plot(page)).to_have_attribute("aria-label", SOME)
    await expect(page.locator(".key")).to_contain_text("not all partitions were known to be live")
    await expect(page.locator(".key")).to_contain_text("this process does not remember what was before")
    await details(page, theirs)
    await expect(plot(page, f"#partition-{theirs}-detail")).to_have_attribute("aria-label", SOME)
    await expect(page.locator(f"#partition-{theirs}-detail .key")).to_contain_text("it was not live")
    await looked_at(page)
