"""The page of a process that works, fails, is frozen, is killed and restores, in a real browser."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.page.looking import looked_at, says
from tests.support import apps
from tests.support.gates import Gate

pytestmark = pytest.mark.kafka
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

    await page.get_by_role("button", name="Write snapshots").click()
    await page.get_by_label("Why").fill("before <b>deploy</b> 42")
    await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
    await expect(page.locator(".notice")).to_contain_text("Snapshot: succeeded")
    await expect(page.get_by_role("region", name="Operations", exact=True)).to_contain_text("before <b>deploy</b> 42")
    await expect(page.get_by_role("region", name="Snapshots", exact=True).get_by_text("pointed")).to_have_count(3)
    await page.get_by_role("button", name="Details of partition 1").press("Enter")
    await expect(page.locator("#partition-1-detail")).to_contain_text(here.input)
    await page.get_by_role("button", name="Close this message").click()
    await looked_at(page, "healthy")

    await here.send([(f"2:paged{number}", {"amount": 1}) for number in range(PAGED)])
    await all_processed(here, child)
    await reads(page)
    await looked_at(page, "state", "#state")
    await pauses(page)

    await here.send([("0:k", {"amount": 1, "poison": True})])
    await says(page, re.compile("1 of 3 partitions is down"))
    card = page.get_by_role("article", name="Partition 0 is down")
    await expect(card).to_contain_text("failed: HandlerFailed")
    await expect(card).to_contain_text("No. All before this record is committed.")
    await leads_on(card, child.url)
    await expect(page.locator(".top")).to_contain_text(re.compile(r"This page: live, as of \d\d:\d\d:\d\d"))
    await looked_at(page, "failed")
    await card.get_by_role("button", name="Retry partition 0").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator(".notice")).to_contain_text("Retry of partition 0: failed")

    child.process.send_signal(signal.SIGSTOP)
    await says(page, re.compile("The process cannot be reached"))
    await expect(page.get_by_role("button", name="Write snapshots")).to_be_disabled()
    await expect(page.locator(".band")).to_contain_text("All below is as of then")
    await looked_at(page, "frozen")
    child.process.send_signal(signal.SIGCONT)
    await says(page, re.compile("1 of 3 partitions is down"))

    child.kill()
    await says(page, re.compile("The process cannot be reached"))
    await looked_at(page, "gone")


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
            re.compile("First, deploy a fixed handler.* nothing is left out"),
            re.compile(r"Only if the cause was outside the handler.*Retry\s+partition 0", re.DOTALL),
            re.compile("As the last way, send the record to the dead letters.*changes neither the state"),
        ]
    )
    copied = await card.locator("[data-copy]").evaluate_all("them => them.map(it => it.dataset.copy)")
    retry, ensure = copied
    assert retry == f"snapreplay retry --partition 0 --url {url}"
    assert re.fullmatch(r"snapreplay topics ensure \S+ --set errors\.policy=dead_letter", ensure)


async def pauses(page: Page) -> None:
    """Pause partition 1 by its button, and resume it."""
    await page.locator("#partition-1-detail").get_by_role("button", name="Pause").click()
    await page.get_by_label("Why").fill("repairs")
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await says(page, re.compile("Partition 1 is paused"))
    await expect(page.get_by_role("article", name="Partition 1 is paused")).to_contain_text("repairs")
    await expect(page.locator("#partition-1")).to_contain_text("paused")
    await page.locator("#partition-1-detail").get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await says(page, re.compile("Healthy"))


async def test_a_restore_as_it_happens(stage: Any, unique: Any, children: Any, page: Page, tmp_path: Path) -> None:
    """The page is there before the restore, shows its stage, and the proof at its end."""
    here = await stage(apps.ledger(unique("restore")))
    await here.feed(200)
    first = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(first.wait_live)
    await asyncio.to_thread(first.until, lambda: first.processed() == 200, "all processed")
    first.kill()
    gate = Gate(tmp_path / "gate", "Advance")
    with gate.armed():
        second = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(second.wait_http)
    await page.goto(second.url)
    await asyncio.to_thread(second.until, gate.reached, "the gate")
    await says(page, re.compile("Partition 0 is being restored"))
    restore = page.get_by_role("article", name="Restore of partition 0")
    await expect(restore.get_by_role("listitem").and_(page.locator("[aria-current=step]"))).to_contain_text("advancing")
    await looked_at(page, "restoring")
    gate.open()
    await says(page, re.compile("Healthy"))
    await expect(page.locator(".band")).to_contain_text("1 of 1 restored state equals the recorded digest")


async def test_a_token_is_asked_for_and_kept_for_the_tab(
    stage: Any, unique: Any, children: Any, page: Page, tmp_path: Path
) -> None:
    """Nothing is shown without it. A wrong one is refused and forgotten; the right one counts for all that the page
    asks, and after a reload."""
    tokens = tmp_path / "tokens"
    tokens.write_text("of-the-night-shift\n")
    here = await stage(apps.ledger(unique("token")))
    await here.feed(20)
    child = children.start("ledger", here.app.app_id, http__token_file=str(tokens))
    await asyncio.to_thread(child.wait_http)
    await page.goto(child.url)
    await enter(page, "of-the-day-shift")
    await expect(page.get_by_role("alert")).to_have_text("The token was refused.")
    await expect(page.get_by_role("region", name="Partitions", exact=True)).to_have_count(0)
    await looked_at(page, "token")
    await enter(page, "of-the-night-shift")
    await says(page, re.compile("Healthy"))
    await page.reload()
    await says(page, re.compile("Healthy"))
    tokens.write_text("of-the-next-shift\n")
    await expect(page.get_by_role("alert")).to_contain_text("not accepted any more: it has expired, or was withdrawn.")
    await enter(page, "of-the-next-shift")
    await says(page, re.compile("Healthy"))
    state = page.get_by_role("region", name="State", exact=True)
    await state.get_by_role("button", name="Browse").click()
    await expect(state.get_by_role("row").nth(1)).to_contain_text("its owner")
    await page.get_by_role("button", name="Forget the token").click()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_what_a_role_may_not_do_is_switched_off(
    stage: Any, unique: Any, children: Any, page: Page, tmp_path: Path
) -> None:
    """And says what it needs. A role that changes counts without a login."""
    here = await stage(apps.ledger(unique("role")))
    tokens = tmp_path / "tokens"
    tokens.write_text("viewer:of-the-night-shift\n")
    child = children.start("ledger", here.app.app_id, http__token_file=str(tokens))
    await asyncio.to_thread(child.wait_http)
    await page.goto(child.url)
    await enter(page, "of-the-night-shift")
    await says(page, re.compile("Healthy"))
    await page.get_by_role("button", name="Details of partition 0").click()
    write, one = (page.get_by_role("button", name=name) for name in ("Write snapshots", "Write a snapshot"))
    adopt = page.get_by_role("button", name="Adopt a proposed snapshot")
    for button, role in ((write, "operator"), (one, "operator"), (adopt, "admin")):
        await expect(button).to_be_disabled()
        await expect(button).to_have_attribute("title", f"This needs the role {role}; the token is of the role viewer.")
    await expect(page.locator(".top")).to_contain_text("role viewer: it may look only")
    tokens.write_text("operator:of-the-night-shift\n")
    await expect(page.locator(".top")).to_contain_text("role operator: it may not adopt or drop")
    await expect(write).to_be_enabled()
    await expect(one).to_be_enabled()
    await expect(adopt).to_be_disabled()
    tokens.write_text("of-the-night-shift\n")
    await expect(adopt).to_be_enabled()


async def enter(page: Page, token: str) -> None:
    """Log in."""
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Show the page").click()


async def reads(page: Page) -> None:
    """Look up keys that cannot be found, browse a partition page by page, and look up one of its keys."""
    state = page.get_by_role("region", name="State", exact=True)
    await state.get_by_label("Key").fill("account-1 <b>")
    await state.get_by_role("button", name="Look up").click()
    await expect(state.get_by_role("alert")).to_contain_text("The key is not in the store: 3 partitions were read")
    await state.get_by_label("Key").fill(".")
    await state.get_by_role("button", name="Look up").click()
    await expect(state.get_by_role("alert")).to_contain_text("it cannot ask for this key")
    await state.get_by_label("Key").fill("")
    await state.get_by_label("Partition").select_option("2")
    await state.get_by_role("button", name="Browse").click()
    keys = state.locator("tbody td:first-child")
    await expect(keys).to_have_count(50)
    first = await keys.all_inner_texts()
    await state.get_by_role("button", name="Next 50").click()
    await expect(state.get_by_role("button", name="Next 50")).to_have_count(0)
    both = [*first, *await keys.all_inner_texts()]
    assert len(both) == len(set(both))
    assert {f"2:paged{number}" for number in range(PAGED)} <= set(both)
    await expect(state.get_by_label("Partition")).to_have_value("2")
    row = state.get_by_role("row").nth(1)
    await expect(row).to_contain_text("its owner")
    key = await row.locator("code").first.inner_text()
    await state.get_by_label("Key").fill(key)
    await state.get_by_role("button", name="Look up").press("Enter")
    await expect(state.get_by_role("row")).to_have_count(2)
