"""The last hour on the page, in a real browser: also what was before the page was opened."""

from __future__ import annotations

import asyncio
import re
from math import sin
from typing import Any

import msgspec
import pytest
from playwright.async_api import Locator, Page, Route, expect

from snapreplay.api.fleet_views import Scope
from snapreplay.api.last_hour import EVERY_SECONDS, ROWS, Row
from snapreplay.api.last_hour_view import view
from snapreplay.service.clock import boot_seconds, wall_ms
from snapreplay.service.control.commit_times import CommitTimes
from snapreplay.service.control.restore_plan import RestoreObjective
from snapreplay.service.control.status import PartitionStatus
from tests.page.looking import looked_at, says
from tests.support import apps
from tests.support.child import Child
from tests.support.fake_control import LIVE, FakeControl
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


class Working(FakeControl):
    """Partition 0, which goes on as the made-up hour before it has ended."""

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


async def test_a_gap_and_a_plot_are_read_by_keyboard(page: Page) -> None:
    """Each row is at its time. One that nobody has seen is not known, and no line goes over it."""
    newest = wall_ms() // 1000 // EVERY_SECONDS
    rows = {newest - age: row for age in range(ROWS) if (row := made_up(age)) is not None}
    remembered = msgspec.json.encode(view(rows, None, Scope.APP))

    async def answer(route: Route) -> None:
        await route.fulfill(body=remembered, content_type="application/json")

    await page.route("**/api/v1/last-hour*", answer)
    control = Working()
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=1)
    async with served(control) as url:
        await page.goto(url)
        first = plot(page)
        await expect(page.locator("#plots-title ~ .key")).to_contain_text("not all partitions were known to be live")
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
        await expect(page.locator("#plots-title ~ .key")).to_contain_text("the objective, 1.5 s")
        await looked_at(page, "last-hour", "#plots-title")


DRIVEN = """async told => {
    const { Hours } = await import(new URL("hour.js", document.querySelector("script[type=module]").src))
    const all = fetch
    let drawn
    const hours = new Hours(() => drawn())
    const found = []
    for (const { at, records, commits, past } of told) {
        const answer = new Response(JSON.stringify(past))
        fetch = async (path, ...how) => path.includes("last-hour") ? answer.clone() : all(path, ...how)
        const answered = new Promise(done => { drawn = done; setTimeout(done, 10_000) })
        const live = { partition: 0, process_id: "a", level: "good", phase: "live", state_bytes: 7, lag: null }
        hours.add([{ ...live, records_total: records, commits }], at * 1000, new Set())
        if (past) await answered
        const columns = ["at", "partitions", "records_per_second", "commit_seconds", "lag"]
        found.push(hours.app.rows.map(row => columns.map(column => row[column] ?? null)))
    }
    return found
}"""


def past(*slots: int) -> Any:
    """An answer with rows of these slots: one record per second, nothing else."""
    answer = view({slot: Row(1, 1, 1.0, None, None, None, None, None) for slot in slots}, None, Scope.APP)
    return msgspec.to_builtins(answer)


async def driven(page: Page, *told: dict[str, Any]) -> Any:
    """Give these answers to the page, one after the other; return its rows after each."""
    async with served(FakeControl()) as url:
        await page.goto(url)
        nothing = {"records": 0, "commits": msgspec.to_builtins(CommitTimes()), "past": None}
        return await page.evaluate(DRIVEN, [{**nothing, **each} for each in told])


async def test_no_line_goes_over_the_time_of_a_process_that_was_gone(page: Page) -> None:
    """It was the only one, so nobody remembers. It has told two rows of its new life when the page asks again."""
    _, heard, told = await driven(
        page,
        {"at": 1000, "past": past(98, 99, 100)},
        {"at": 1300, "past": past()},
        {"at": 1325, "past": past(130, 132)},
    )
    assert [(at, partitions) for at, partitions, *_ in heard] == [(980, 1), (990, 1), (1000, 1), (1300, 0)]
    assert [(at, partitions) for at, partitions, *_ in told[2:]] == [
        (1000, 1),
        (1001, 0),
        (1300, 1),
        (1310, 0),
        (1320, 1),
        (1325, 0),
    ]


async def test_the_page_goes_on_after_a_clock_was_set_back(page: Page) -> None:
    """What came after the new time is what nobody knows yet."""
    *_, last = await driven(
        page,
        {"at": 5000, "past": past(499, 500)},
        {"at": 5006, "records": 12},
        {"at": 1400, "records": 12, "past": past(139, 140)},
        {"at": 1406, "records": 24},
    )
    assert last == [[1390, 1, 1, None, None], [1400, 1, 1, None, None], [1406, 1, 2, None, None]]


async def test_a_row_of_the_page_is_of_some_seconds(page: Page) -> None:
    """A batch more or less in half a second is no peak. What began anew and is further already has no negative times,
    a process of an older version tells of no commits, and a lag that is not known is not 0."""
    times = ((10, 9.0), (12, 9.5), (20, 1.0))
    commits = [{"total": total, "seconds_total": seconds, "longest_seconds": 1} for total, seconds in times]
    *_, last = await driven(
        page,
        {"at": 1000, "commits": commits[0], "past": past()},
        {"at": 1001, "records": 50, "commits": commits[0]},
        {"at": 1006, "records": 60, "commits": commits[1]},
        {"at": 1012, "records": 66, "commits": commits[2]},
        {"at": 1018, "records": 66, "commits": None},
    )
    assert last == [[1006, 1, 10, 0.25, None], [1012, 1, 1, None, None], [1018, 1, 0, None, None]]


async def test_an_older_process_remembers_nothing(page: Page) -> None:
    """The page says so, and begins with what it hears itself."""

    async def answer(route: Route) -> None:
        problem = '{"type": "about:blank", "title": "Not Found", "status": 404}'
        await route.fulfill(status=404, body=problem, content_type="application/problem+json")

    await page.route("**/api/v1/last-hour*", answer)
    async with served(FakeControl()) as url:
        await page.goto(url)
        await expect(page.locator("#plots-title ~ .key")).to_contain_text("of a version that does not remember it")
        await expect(plot(page)).to_have_attribute(
            "aria-label", re.compile(r"Records per second: now 0 \(1 of 6 live\), at most 0")
        )
        await looked_at(page, "hour_of_an_older_process")
