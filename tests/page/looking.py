"""Looks at a page in each of its states: its verdict, its accessibility, its widths."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, get_args

from axe_playwright_python.async_playwright import Axe
from axe_playwright_python.base import AxeResults
from playwright.async_api import Locator, Page, ViewportSize, expect

from tests.support.fake_control import FakeControl
from tests.support.served import served

Theme = Literal["light", "dark"]
WIDTHS = (360, 768, 1440)
WIDE: ViewportSize = {"width": WIDTHS[-1], "height": 900}
AXE = Axe()
RULES: dict[Theme, dict[str, object]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
VIOLATIONS = "rules => axe.run({ ...rules, resultTypes: ['violations'] }).then(({ violations }) => ({ violations }))"
"""All that it found otherwise is megabytes of no use."""


@asynccontextmanager
async def opened(page: Page, control: FakeControl) -> AsyncIterator[str]:
    """Serve the page of this control, and open it."""
    async with served(control) as url:
        await page.goto(url)
        yield url


async def says(page: Page, headline: str | re.Pattern[str]) -> None:
    """Wait until the verdict of the page is this one."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(headline)


async def tab(page: Page, name: str) -> None:
    """Go to a tab by its link."""
    await page.get_by_role("navigation", name="Tabs").get_by_role("link", name=re.compile(f"^{name}")).click()


async def details(page: Page, partition: int) -> Locator:
    """Open the details of a partition, and return them."""
    await tab(page, "Partitions")
    await page.get_by_role("button", name=f"Details of partition {partition}").press("Enter")
    return page.locator(f"#partition-{partition}-detail")


async def looked_at(page: Page) -> None:
    """Let axe look at the page at each width, in both themes where colours matter; nothing is wider than the screen."""
    await page.evaluate(AXE.axe_script)
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        for theme in get_args(Theme):
            await page.emulate_media(color_scheme=theme)
            found = AxeResults(await page.evaluate(VIOLATIONS, RULES[theme]))
            assert not found.violations_count, (width, theme, found.generate_report())
    await page.set_viewport_size(WIDE)
