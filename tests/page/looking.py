"""What is asked of the page in each of its states."""

from __future__ import annotations

import os
import re
from pathlib import Path

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

PICTURES = os.environ.get("SNAPREPLAY_TEST_PICTURES")
"""A folder for pictures of the page, such as docs/pictures; without it none is taken."""
WIDTHS = (360, 800, 1440)


async def says(page: Page, headline: str | re.Pattern[str]) -> None:
    """Wait until the verdict of the page is this one."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(headline)


async def looked_at(page: Page, name: str) -> None:
    """Let axe look at the page in both themes and at three widths, and take pictures if somebody wants them."""
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)
        found = await Axe().run(page)
        assert not found.violations_count, found.generate_report()
        for width in WIDTHS if PICTURES else ():
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=Path(PICTURES or "") / f"page-{name}-{theme}-{width}.png", full_page=True)
    await page.set_viewport_size({"width": 1440, "height": 900})
    await fits(page)


async def fits(page: Page) -> None:
    """Nothing is wider than the narrowest screen."""
    await page.set_viewport_size({"width": 360, "height": 900})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.set_viewport_size({"width": 1440, "height": 900})
