"""The page of one process through a night: it works, fails, is frozen, and is killed. A real browser looks at it."""

import asyncio
import re
import signal
from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.page.looking import details, looked_at, says, tab
from tests.support import apps

PAGED = 60
"""Entries of partition 2 that are looked at in pages."""


async def test_a_night_of_one_process(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """Healthy, a snapshot by the button, FAILED with its hint, a retry that fails again, frozen, back, and gone: the
    page says each, and offers what can be done."""
    here = await stage(apps.ledger(unique("night")), partitions=3)
    await here.feed(60)
    child = children.start("poisoned", here.app.app_id, group__session_timeout_ms=30_000)
    await all_processed(here, child)
    await page.goto(child.url)
    await says(page, re.compile("Healthy"))
    await expect(page.locator(".band")).to_contain_text("All 3 partitions are live")
    await expect(page).to_have_title(f"Healthy · {here.app.app_id}")

    await tab(page, "Snapshots")
    await page.get_by_role("button", name="Write snapshots").click()
    await page.get_by_label("Why").fill("before <b>deploy</b> 42")
    await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
    await expect(page.locator(".notice")).to_contain_text("Snapshot: succeeded")
    await page.get_by_role("button", name="Close this message").click()
    await expect(page.get_by_role("region", name="Snapshots", exact=True).get_by_text("in use")).to_have_count(3)
    await tab(page, "Operations")
    await expect(page.get_by_role("region", name="Operations", exact=True)).to_contain_text("before <b>deploy</b> 42")
    await expect(await details(page, 1)).to_contain_text(here.input)
    await looked_at(page)
    await tab(page, "Overview")
    await looked_at(page)

    await here.send([(f"2:paged{number}", {"amount": 1}) for number in range(PAGED)])
    await all_processed(here, child)
    await reads(page)
    await looked_at(page)
    await pauses(page)
    await tab(page, "Overview")

    await here.send([("0:k", {"amount": 1, "poison": True})])
    await says(page, re.compile("1 of 3 partitions is down"))
    card = page.get_by_role("article", name="Partition 0 is down")
    await expect(card).to_contain_text("failed: HandlerFailed")
    await expect(card).to_contain_text("No. Everything before this record is committed.")
    await leads_on(card, child.url)
    await expect(page.locator(".top")).to_contain_text(re.compile(r"This page: live, as of \d\d:\d\d:\d\d"))
    await looked_at(page)
    await card.get_by_role("button", name="Retry partition 0").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator(".notice")).to_contain_text("Retry of partition 0: failed")

    child.process.send_signal(signal.SIGSTOP)
    await says(page, re.compile("The process cannot be reached"))
    await expect(card.get_by_role("button", name="Retry partition 0")).to_be_disabled()
    await expect(page.locator(".band")).to_contain_text("Everything below is as of then")
    await looked_at(page)
    child.process.send_signal(signal.SIGCONT)
    await says(page, re.compile("1 of 3 partitions is down"))

    child.kill()
    await says(page, re.compile("The process cannot be reached"))
    await looked_at(page)


async def all_processed(here: Any, child: Any) -> None:
    """Wait until its three partitions are live and have all that was sent."""
    await asyncio.to_thread(child.wait_live, 3)
    sent = sum(map(len, await here.read(here.input)))
    await asyncio.to_thread(child.until, lambda: child.processed() == sent, f"{sent} records")


async def leads_on(card: Locator, url: str) -> None:
    """The ways on, the safest first; each command is whole, and the button of a retry stands at its command."""
    ways = card.get_by_role("listitem")
    await expect(ways).to_contain_text(
        [
            re.compile("First, deploy a fixed handler.* skips none"),
            re.compile(r"Only if the cause was outside the handler.*Retry\s+partition 0", re.DOTALL),
            re.compile("As a last resort, send the record to the dead letters.*changes neither the state"),
        ]
    )
    copied = await card.locator("[data-copy]").evaluate_all("them => them.map(it => it.dataset.copy)")
    retry, ensure = copied
    assert retry == f"snapreplay retry --partition 0 --url {url}"
    dead_letter = r"--set errors\.policy=dead_letter"
    assert re.fullmatch(rf"snapreplay topics ensure \S+ {dead_letter}", ensure)


async def pauses(page: Page) -> None:
    """Pause partition 1 by its button, and resume it."""
    detail = await details(page, 1)
    await detail.get_by_role("button", name="Pause").click()
    await page.get_by_label("Why").fill("repairs")
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await says(page, re.compile("Partition 1 is paused"))
    await expect(page.locator("#partition-1")).to_contain_text("paused")
    await detail.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await says(page, re.compile("Healthy"))


async def reads(page: Page) -> None:
    """Look up keys that cannot be found, browse a partition page by page, and look up one of its keys."""
    await tab(page, "State")
    state = page.get_by_role("region", name="State", exact=True)
    get, browse = (state.get_by_role("form", name=re.compile(f"^{name}")) for name in ("Get", "Browse"))
    await get.get_by_label("Key").fill("account-1 <b>")
    await get.get_by_role("button", name="Get").click()
    await expect(state.get_by_role("alert")).to_contain_text("The key is not in the store: 3 partitions were read")
    await get.get_by_label("Key").fill(".")
    await get.get_by_role("button", name="Get").click()
    await expect(state.get_by_role("alert")).to_contain_text("it cannot ask for this key")
    await browse.get_by_label("Partition").select_option("2")
    await browse.get_by_role("button", name="Browse").click()
    keys = state.locator("tbody td:first-child")
    await expect(keys).to_have_count(50)
    first = await keys.all_inner_texts()
    await state.get_by_role("button", name="Next 50").click()
    await expect(state.get_by_role("button", name="Next 50")).to_have_count(0)
    both = [*first, *await keys.all_inner_texts()]
    assert len(both) == len(set(both))
    assert {f"2:paged{number}" for number in range(PAGED)} <= set(both)
    await expect(browse.get_by_label("Partition")).to_have_value("2")
    row = state.get_by_role("row").nth(1)
    await expect(row).to_contain_text("its owner")
    key = await row.locator("code").first.inner_text()
    await get.get_by_label("Key").fill(key)
    await get.get_by_role("button", name="Get").press("Enter")
    await expect(state.get_by_role("row")).to_have_count(2)
