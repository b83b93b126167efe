"""The last hour on the page, in a real browser: also what was before the page was opened."""

import asyncio
import re
from collections.abc import Callable
from math import sin
from typing import Any

import msgspec
import pytest
from playwright.async_api import Locator, Page, Route, expect

from snapreplay.api.last_hour import EVERY_SECONDS, ROWS, Row, view
from snapreplay.service.clock import boot_seconds, wall_ms
from snapreplay.service.control.restore_plan import RestoreObjective
from snapreplay.service.control.status import CommitTimes, PartitionStatus
from tests.page.looking import details, looked_at, opened, says
from tests.support import apps
from tests.support.child import Child
from tests.support.fake_control import FAILED, LIVE, LOADING, FakeControl

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


class Working(FakeControl):
    """Partition 0, which continues as the made-up hour before it has ended."""

    def partitions(self) -> list[PartitionStatus]:
        now = boot_seconds()
        commits = CommitTimes(int(now * 40), now * 0.48, 0.05)
        goal = RestoreObjective(1.5, 0.8, 0.4, is_met=True)
        return [
            msgspec.structs.replace(
                LIVE, records_total=int(now * 400), commits=commits, state_bytes=12_000_000, objective=goal
            )
        ]


def made_up(age: int) -> Row | None:
    """The row that is so many slots old. Nothing is known of a minute, and a restore took two."""
    if 3 <= age < 9:
        return None
    noise = age * 7919 % 101 % 40
    rate, size, restore = round(400 + 90 * sin(age / 30) + noise), 12e6 - 9e3 * age, 0.4 + (600 - age) % 60 / 100
    if 150 <= age < 162:
        return Row(1, 0, 0.0, None, None, None, None, None)
    lag = 22 + noise + (400 * max(0, 18 - (150 - age)) if age < 150 else 0)
    return Row(1, 1, rate, 0.010 + noise / 10_000, 0.03 + noise**3 / 1e6, size, restore, lag)


async def remembers(page: Page, made: Callable[[int], Row | None]) -> None:
    """Let the process remember these rows, by how many slots old they are."""
    newest = wall_ms() // 1000 // EVERY_SECONDS
    rows = {newest - age: row for age in range(ROWS) if (row := made(age)) is not None}
    remembered = msgspec.json.encode(view(rows, None))

    async def answer(route: Route) -> None:
        await route.fulfill(body=remembered, content_type="application/json")

    await page.route("**/api/v1/last-hour*", answer)


async def test_a_gap_and_a_plot_are_read_by_keyboard(page: Page) -> None:
    """Each row is at its time. One without a look is not known, and no line goes over it."""
    await remembers(page, made_up)
    control = Working()
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=1)
    async with opened(page, control):
        first = plot(page)
        await expect(page.locator(".key")).to_contain_text("not all partitions were known to be live")
        said = first.locator(".at")
        await first.focus()
        found: list[str] = []
        while len(found) < 60 and "known" not in found[:-3]:
            await page.keyboard.press("ArrowLeft")
            found.append((await said.inner_text()).split()[-1])
        until = found.index("known")
        before = (made_up(age) for age in range(3))
        assert found[until - 3 : until] == [f"{row.records_per_second:.0f}" for row in before if row]
        await first.blur()
        await expect(page.locator(".key")).to_contain_text("the objective, 1.5 s")
        await looked_at(page)


async def test_a_lag_names_the_partitions_that_it_leaves_out(page: Page) -> None:
    """One that is not live has no lag, so the lag of the app is that of the others only."""
    live = [msgspec.structs.replace(LIVE, partition=number) for number in range(3)]
    control = FakeControl(live)
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=3)
    await remembers(page, lambda age: Row(3, 2, 0.0, None, None, None, None, 0) if age < 9 else None)
    async with opened(page, control):
        figure = page.locator(".plots figure").nth(2)
        for others, said in (
            ([FAILED], "without partition 2, which is down"),
            ([LOADING], "without partitions 1 and 2, whose lag is not known"),
            ([live[2]], "without partition 1, which is being restored"),
        ):
            control.statuses |= {each.partition: each for each in others}
            await expect(figure.locator("figcaption")).to_have_text(f"Lag, in records 0 {said}")
            await expect(figure.get_by_role("img")).to_have_attribute("aria-label", re.compile(rf"now 0 \({said}\)"))


async def test_an_older_process_remembers_nothing(page: Page) -> None:
    """The page says so, and knows nothing of what is now either."""

    async def answer(route: Route) -> None:
        problem = '{"type": "about:blank", "title": "Not Found", "status": 404}'
        await route.fulfill(status=404, body=problem, content_type="application/problem+json")

    await page.route("**/api/v1/last-hour*", answer)
    async with opened(page, FakeControl()):
        await expect(page.locator(".key")).to_contain_text("of a version that does not remember it")
        await expect(plot(page)).to_have_attribute("aria-label", re.compile(r"Records per second: now not known"))
        await looked_at(page)


async def test_the_scale_of_the_commits_has_no_zero(page: Page) -> None:
    """It is in powers of ten; one for whose label there is no room has none."""
    await page.add_init_script(
        "window.written = new Map(); const write = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {"
        "  const label = this.canvas.closest('hour-plot')?.getAttribute('aria-label') ?? '';"
        "  written.set(label.split(':')[0], (written.get(label.split(':')[0]) ?? new Set()).add(text));"
        "  return write.call(this, text, ...at); }"
    )
    async with opened(page, Working()):
        await remembers(page, lambda age: Row(1, 1, 400.0, 0.02, 4.0 if age == 50 else 0.05, 12e6, 0.4, 5))
        await expect(page.get_by_role("img", name=re.compile("^Commit: .*at most 4.0 s"))).to_be_visible()
        labels = await page.evaluate("[...written.get('Commit')].filter(each => each && !each.includes(':'))")
    assert "0" not in labels
    assert {"10 s", "100 ms"} <= set(labels)
