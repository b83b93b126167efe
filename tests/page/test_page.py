"""The page of a process that restores, asks for a token, and knows roles, in a real browser."""

import asyncio
import re
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.page.looking import details, looked_at, says, tab
from tests.support import apps
from tests.support.gates import Gate


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
    await looked_at(page)
    gate.open()
    await expect(restore).to_contain_text("proven")
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
    await expect(page.get_by_role("navigation")).to_have_count(0)
    await looked_at(page)
    await enter(page, "of-the-night-shift")
    await says(page, re.compile("Healthy"))
    await page.reload()
    await says(page, re.compile("Healthy"))
    tokens.write_text("of-the-next-shift\n")
    await expect(page.get_by_role("alert")).to_contain_text("not accepted any more: it has expired, or was withdrawn.")
    await enter(page, "of-the-next-shift")
    await says(page, re.compile("Healthy"))
    await tab(page, "State")
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
    detail = await details(page, 0)
    one, adopt = (detail.get_by_role("button", name=name) for name in ("Write a snapshot", "Adopt a proposed"))
    for button, role in ((one, "operator"), (adopt, "admin")):
        await expect(button).to_be_disabled()
        await expect(button).to_have_attribute("title", f"This needs the role {role}; the token is of the role viewer.")
    await expect(page.locator(".top")).to_contain_text("role viewer: read only")
    tokens.write_text("operator:of-the-night-shift\n")
    await expect(page.locator(".top")).to_contain_text("role operator: cannot adopt or drop")
    await expect(one).to_be_enabled()
    await expect(adopt).to_be_disabled()
    tokens.write_text("of-the-night-shift\n")
    await expect(adopt).to_be_enabled()


async def enter(page: Page, token: str) -> None:
    """Log in."""
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Show the page").click()
