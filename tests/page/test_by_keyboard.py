"""The page by keyboard alone, the adoption of a snapshot, and ranges of keys, in a real browser."""

from __future__ import annotations

import re

import msgspec
from playwright.async_api import Page, expect

from tests.page.looking import details, says, tab
from tests.page.test_states import healthy
from tests.support.fake_control import FAILED, FakeControl
from tests.support.served import served


def asked(control: FakeControl) -> list[tuple[str, str]]:
    """Return what was asked for, and why."""
    return [(each.kind, each.reason) for each in control.operations()]


async def test_a_dialog_is_answered_and_left_by_keyboard(page: Page) -> None:
    """Enter opens it with the focus in it, Escape leaves it and asks for nothing, Enter in its field confirms. The
    focus comes back to the button."""
    control = healthy()
    async with served(control) as url:
        await page.goto(url)
        await says(page, re.compile("Healthy"))
        await tab(page, "Snapshots")
        write, dialog = page.get_by_role("button", name="Write snapshots"), page.get_by_role("dialog")
        await write.press("Enter")
        await expect(dialog.get_by_label("Why")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(write).to_be_focused()
        assert asked(control) == []
        await page.keyboard.press("Space")
        await dialog.get_by_label("Why").press_sequentially("deploy")
        await page.keyboard.press("Enter")
        await expect(page.locator(".notice")).to_contain_text("Snapshot: running")
        await expect(write).to_be_focused()
        assert asked(control) == [("snapshot", "deploy")]


async def test_the_way_to_a_partition_is_by_keyboard(page: Page) -> None:
    """The first stop skips the links. A partition of the picture opens its details, and has the focus there. Their
    address leads to them again, and back leads to the overview."""
    async with served(healthy()) as url:
        await page.goto(url)
        await says(page, re.compile("Healthy"))
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await page.get_by_role("link", name=re.compile("Partition 0, live.*: details")).press("Enter")
        toggle = page.get_by_role("button", name="Details of partition 0")
        await expect(toggle).to_be_focused()
        await expect(toggle).to_have_attribute("aria-expanded", "true")
        await page.reload()
        await expect(toggle).to_have_attribute("aria-expanded", "true")
        await page.go_back()
        await expect(page.get_by_role("region", name="Processes")).to_be_visible()
        await page.go_forward()
        await toggle.press("Enter")
        await expect(page.locator("#partition-0-detail")).to_be_hidden()
        await expect(toggle).to_be_focused()


async def test_a_proposed_snapshot_is_adopted_by_its_offset(page: Page) -> None:
    """Without an offset nothing is asked. A refusal is shown in the dialog, which stays."""
    control = healthy()
    async with served(control) as url:
        await page.goto(url)
        await details(page, 0)
        await page.get_by_role("button", name="Adopt a proposed snapshot").press("Enter")
        dialog = page.get_by_role("dialog")
        offset = dialog.get_by_label("Offset of its manifest")
        await expect(offset).to_be_focused()
        await offset.press("Enter")
        await expect(dialog).to_be_visible()
        assert asked(control) == []
        live, control.statuses[0] = control.statuses[0], msgspec.structs.replace(FAILED, partition=0)
        await offset.fill("42")
        await offset.press("Enter")
        await expect(dialog.get_by_role("alert")).to_contain_text("it is failed, not live")
        control.statuses[0] = live
        await offset.press("Enter")
        await expect(page.locator(".notice")).to_contain_text("Adoption for partition 0: running")
        await expect(dialog).to_have_count(0)
        assert asked(control) == [("adopt", "manifest at offset 42")]
