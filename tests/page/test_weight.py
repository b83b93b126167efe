"""What a browser loads for the page, how soon something is seen, and whether it moves afterwards."""

import re

from playwright.async_api import Page

from tests.page.looking import opened, says
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl

MOST_BYTES = 350_000
FIRST_PAINT_MS, SHIFT = 1_800, 0.1
"""What Lighthouse calls good."""
MEASURED = """async () => {
  const shifts = [];
  const observer = new PerformanceObserver((list) => shifts.push(...list.getEntries()));
  observer.observe({ type: "layout-shift", buffered: true });
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const loaded = ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind));
  return {
    bytes: loaded.reduce((sum, each) => sum + each.transferSize, 0),
    paint_ms: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    shift: shifts.reduce((sum, each) => sum + each.value, 0),
  };
}"""


async def test_it_is_light_and_seen_soon_and_stays_where_it_is(page: Page) -> None:
    """From an empty cache, and two seconds of updates."""
    async with opened(page, FakeControl()):
        await says(page, re.compile("partitions"))
        found = await page.evaluate(MEASURED)
    assert 0 < found["bytes"] <= MOST_BYTES, found
    assert found["paint_ms"] <= scaled(FIRST_PAINT_MS), found
    assert found["shift"] <= SHIFT, found
