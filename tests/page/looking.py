"""Looks at a page in each of its states: its verdict, its accessibility, its widths, its picture."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, get_args

from axe_playwright_python.async_playwright import Axe
from axe_playwright_python.base import AxeResults
from playwright.async_api import Locator, Page, ViewportSize, expect

Theme = Literal["light", "dark"]
WIDTHS = (360, 768, 1440)
WIDE: ViewportSize = {"width": WIDTHS[-1], "height": 900}
PICTURES = os.environ.get("SNAPREPLAY_TEST_PICTURES")
"""A folder for the pictures of the page that the documents show: docs/pictures. Without it none is taken."""
SHOWN: dict[str, list[tuple[Theme, int, int]]] = {
    "failed": [("light", 1280, 840), ("dark", 360, 760)],
    "fleet": [("dark", 1280, 840)],
    "history": [("light", 1280, 680)],
    "last-hour": [("light", 1280, 270)],
    "state": [("light", 1280, 620)],
    "restores": [("dark", 768, 900)],
    "savepoints": [("light", 768, 420)],
}
"""Name of a state → theme, width and height of its pictures."""
AXE = Axe()
RULES: dict[Theme, dict[str, object]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
VIOLATIONS = "rules => axe.run({ ...rules, resultTypes: ['violations'] }).then(({ violations }) => ({ violations }))"
"""All that it found otherwise is megabytes, which nobody looks at."""


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


async def looked_at(page: Page, name: str, at: str = "body") -> None:
    """Take the pictures of this state if somebody wants them: from the element `at` on. Then let axe look at the page
    at each width, in both themes where colours matter; nothing is wider than the screen."""
    for theme, width, height in SHOWN.get(name, []) if PICTURES else []:
        await page.emulate_media(color_scheme=theme)
        await page.set_viewport_size({"width": width, "height": height})
        await page.mouse.move(0, 0)
        await page.locator(at).first.evaluate("it => it.scrollIntoView({ behavior: 'instant' })")
        await page.screenshot(path=Path(PICTURES or "") / f"page-{name}-{theme}-{width}.png")
    await page.evaluate(AXE.axe_script)
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        for theme in get_args(Theme):
            await page.emulate_media(color_scheme=theme)
            found = AxeResults(await page.evaluate(VIOLATIONS, RULES[theme]))
            assert not found.violations_count, (width, theme, found.generate_report())
    await page.set_viewport_size(WIDE)
