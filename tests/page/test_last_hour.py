"""The last hour on the page, in a real browser: also what was before the page was opened."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest
from playwright.async_api import Locator, Page, Route, expect

from snapreplay.api.fleet_views import Scope
from snapreplay.api.last_hour import EVERY_SECONDS, Row
from snapreplay.api.last_hour_view import view
from snapreplay.service.clock import wall_ms
from tests.page.looking import looked_at, says
from tests.support import apps
from tests.support.child import Child
from tests.support.fake_control import FakeControl
from tests.support.served import served

pytestmark = pytest.mark.kafka
SOME = re.compile(r"Records per second: now .*, at most [1-9]")


def columns(child: Child) -> Any:
    """Ask what this process alone remembers."""
    return child.get("/api/v1/last-hour?scope=local")


def plot(page: Page, of: str = "#plots-title + .plots") -> Locator:
    """The plot of records per second."""
    return page.locator(of).get_by_role("img").first


async def test_the_page_has_what_was_before_it_was_opened(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """Records are processed, a process is killed, its partitions are restored elsewhere, and nothing happens any more.
    Then somebody opens the page of the other process: it has all of that, also what the dead process did. So has that
    of a process that was started later."""
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
    await expect(page.locator("#plots-title ~ .key")).to_contain_text("not all partitions were known to be live")
    await expect(page.locator("#plots-title ~ .key")).to_contain_text("no process remembers what was before")
    await page.get_by_role("button", name=f"Details of partition {theirs}").click()
    await expect(plot(page, f"#partition-{theirs}-detail")).to_have_attribute("aria-label", SOME)
    await expect(page.locator(f"#partition-{theirs}-detail .key")).to_contain_text("it was not live")
    await looked_at(page, "last_hour", "#plots-title")

    three = children.start("ledger", here.app.app_id, instance_id="three")
    await asyncio.to_thread(three.wait_live, 1)
    await page.goto(three.url)
    await expect(plot(page)).to_have_attribute("aria-label", SOME)
    assert not any(columns(three)["records_per_second"])


async def test_a_gap_and_a_plot_are_read_by_keyboard(page: Page) -> None:
    """Each row is at its time. One that nobody has seen is not known, and no line goes over it."""
    newest = wall_ms() // 1000 // EVERY_SECONDS
    rows = {newest - age: Row(6, 6, 100.0 + age, 0.004, 0.02, 5e6, 0.5, 7.0) for age in range(5, 15) if age != 7}
    remembered = msgspec.json.encode(view(rows, None, Scope.APP))

    async def answer(route: Route) -> None:
        await route.fulfill(body=remembered, content_type="application/json")

    await page.route("**/api/v1/last-hour*", answer)
    async with served(FakeControl()) as url:
        await page.goto(url)
        first = plot(page)
        await expect(first).to_have_attribute("aria-label", re.compile("at most 114 in the last hour"))
        said = first.locator(".at")
        await first.focus()
        found: list[str] = []
        while len(found) < 40 and "114" not in found[-1:]:
            await page.keyboard.press("ArrowLeft")
            found.append((await said.inner_text()).split()[-1])
        assert found[-10:] == ["105", "106", "known", *(str(number) for number in range(108, 115))]
        await looked_at(page, "hour_with_a_gap")


async def test_an_older_process_remembers_nothing(page: Page) -> None:
    """The page says so, and begins with what it hears itself."""

    async def answer(route: Route) -> None:
        problem = '{"type": "about:blank", "title": "Not Found", "status": 404}'
        await route.fulfill(status=404, body=problem, content_type="application/problem+json")

    await page.route("**/api/v1/last-hour*", answer)
    async with served(FakeControl()) as url:
        await page.goto(url)
        await expect(page.locator("#plots-title ~ .key")).to_contain_text("of a version that does not remember it")
        await expect(plot(page)).to_have_attribute("aria-label", re.compile("Records per second: now 0, at most 0"))
        await looked_at(page, "hour_of_an_older_process")
