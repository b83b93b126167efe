"""The page of one process of several, in a real browser."""

import asyncio
import re
from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.page.looking import details, looked_at, says, tab
from tests.support import apps
from tests.support.deadlines import scaled


async def test_any_process_shows_the_whole_app(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """Owners and warm copies are one picture. What another process has to do is asked here, and its death is seen, with
    what becomes of its partitions."""
    here = await stage(apps.ledger(unique("fleet")), partitions=4)
    await here.feed(40)
    # While the group takes a dead one for a member, the page has a card of it: a busy one needs time to show it. And
    # one that is only suspended is not to lose its partitions.
    patience_ms = int(min(scaled(8), 45) * 1000)
    waits = {"group__session_timeout_ms": patience_ms, "http__suspect_after_ms": patience_ms, "standby__replicas": 1}
    both = {name: children.start("poisoned", here.app.app_id, instance_id=name, **waits) for name in ("one", "two")}
    one, two = both.values()
    for child in both.values():
        await asyncio.to_thread(child.wait_http)
    await page.goto(one.url)
    await says(page, re.compile("Healthy"))
    await expect(page.locator(".band")).to_contain_text("All 4 partitions are live, in 2 processes that answer.")
    lane = page.get_by_role("list", name="Partitions of two")
    await expect(lane.locator("a")).to_have_count(2)
    await expect(lane.get_by_text(re.compile(r"copy of partition .: warm, .* \d+ digests? equal"))).to_have_count(2)

    theirs = await number_of(lane)
    await tab(page, "State")
    state = page.get_by_role("region", name="State", exact=True)
    browse = state.get_by_role("form", name=re.compile("^Browse"))
    await browse.get_by_label("Partition").select_option(theirs)
    for stale, answered_by in ((False, "its owner"), (True, "a warm copy")):
        await browse.get_by_label("also from warm copies").set_checked(stale)
        await browse.get_by_role("button", name="Browse").click()
        await expect(state.get_by_role("row").nth(1)).to_contain_text(answered_by)
    await tab(page, "Overview")

    await drains(page)
    failing = await number_of(lane)
    await here.send([(f"{failing}:k", {"amount": 1, "poison": True})])
    card = page.get_by_role("article", name=f"Partition {failing} is down")
    await expect(card).to_be_visible()
    await looked_at(page)
    await card.get_by_role("button", name=f"Retry partition {failing}").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator(".notice")).to_contain_text(f"Retry of partition {failing}: failed")
    await tab(page, "Snapshots")
    await page.get_by_role("button", name="Write snapshots").click()
    await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
    await expect(page.locator(".notice")).to_contain_text("Snapshot: succeeded")
    await expect(page.get_by_role("region", name="Snapshots", exact=True).get_by_text("trigger")).to_have_count(3)
    # By its name: both are on one host.
    await tab(page, "Operations")
    await expect(page.get_by_role("region", name="Operations", exact=True)).to_contain_text("snapshot two")
    await tab(page, "Overview")

    two.kill()
    await expect(page.locator(".lane").filter(has_text="two")).to_contain_text(re.compile("dead.*was warm", re.DOTALL))
    await expect(page.get_by_role("article", name="Process two on")).to_contain_text("Nothing now: other processes")
    await expect(page.get_by_role("list", name="Partitions of one").locator("a")).to_have_count(4)
    await expect(card.get_by_role("button", name=f"Retry partition {failing}")).to_be_enabled()
    await looked_at(page)


async def number_of(lane: Locator) -> str:
    """Read the number of the first partition. How long it is live is seen without a pointer, and heard."""
    cell = lane.locator("a").first
    await expect(cell).to_have_text(re.compile(r"✓\d\s*\d+\s(s|min)"))
    await expect(cell).to_have_accessible_name(re.compile(r"Partition \d, live for \d+\s(s|min): details"))
    return re.sub(r"\D", "", await cell.locator("span").first.inner_text())


async def drains(page: Page) -> None:
    """Drain the other process by its button, and undrain it: it has nothing meanwhile, and the page says why."""
    lane = page.locator(".lane").filter(has_text="two")
    await lane.get_by_role("button", name="Drain two").click()
    await page.get_by_label("Why").fill("a new kernel")
    await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    await expect(page.locator(".notice")).to_contain_text("Drain of two: succeeded")
    await says(page, re.compile("Process two is drained"))
    await expect(page.get_by_role("article", name="Process two is drained")).to_contain_text("a new kernel")
    await expect(page.get_by_role("list", name="Partitions of one").locator("a")).to_have_count(4)
    await expect(lane).to_contain_text("no partition")
    alone = page.locator(".lane", has=page.get_by_role("list", name="Partitions of one"))
    await expect(alone).to_contain_text("0 of 1 copy of each")
    await expect(alone).to_contain_text("the group has 1 other process: 1 drained or stopping")
    await expect(await details(page, 0)).to_contain_text("1 copy is wanted, 0 exist: the group has 1 other process")
    await tab(page, "Overview")
    await page.get_by_role("button", name="Drain one").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    await expect(page.get_by_role("dialog")).to_contain_text("all other processes are drained or stopping: two on")
    await looked_at(page)
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await lane.get_by_role("button", name="Undrain two").click()
    await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    await says(page, re.compile("Healthy"))
    await expect(page.get_by_role("list", name="Partitions of two").locator("a")).to_have_count(2)
