"""The page by keyboard alone, the adoption of a snapshot, and ranges of keys, in a real browser."""

import re
from typing import Any

import msgspec
from playwright.async_api import Page, expect

from snapreplay import MapState
from snapreplay.api.server import HttpServer
from tests.page.looking import details, opened, says, tab
from tests.page.test_states import healthy
from tests.support import apps
from tests.support.fake_control import FAILED, FakeControl


def asked(control: FakeControl) -> list[tuple[str, str]]:
    """Return what was asked for, and why."""
    return [(each.kind, each.reason) for each in control.operations()]


async def test_a_dialog_is_answered_and_left_by_keyboard(page: Page) -> None:
    """Enter opens it with the focus in it, Escape leaves it and asks for nothing, Enter in its field confirms. The
    focus comes back to the button."""
    control = healthy()
    async with opened(page, control):
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


async def test_a_dialog_that_is_opened_again_at_once_keeps_its_words(page: Page) -> None:
    """The browser tells of a close later, on a busy machine after the next key: the event is not about the new one."""
    async with opened(page, healthy()):
        await says(page, re.compile("Healthy"))
        await tab(page, "Snapshots")
        write, dialog = page.get_by_role("button", name="Write snapshots"), page.get_by_role("dialog")
        await write.press("Enter")
        await expect(dialog.get_by_label("Why")).to_be_focused()
        at_once = "dialog => { dialog.addEventListener('close', () => dialog.dataset.told = ''); dialog.close(); %s }"
        again = "buttons.find(each => each.textContent.includes('Write snapshots')).click()"
        await dialog.evaluate(at_once % f"const buttons = [...document.querySelectorAll('button')]; {again}")
        await expect(page.locator("dialog[data-told]")).to_be_visible()
        await expect(dialog.get_by_label("Why")).to_be_visible()


async def test_the_way_to_a_partition_is_by_keyboard(page: Page) -> None:
    """The first stop skips the links. A partition of the picture opens its details, and has the focus there. Their
    address leads to them again, and back leads to the overview."""
    async with opened(page, healthy()):
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
    async with opened(page, control):
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


async def test_a_range_is_browsed(stage: Any, unique: Any, page: Page) -> None:
    """From a key, before another one, and by a prefix; keys are in their order."""

    def accounts() -> MapState[str, dict[str, int]]:
        return MapState(str, dict, default=lambda: {"n": 0, "sum": 0}, ordered=True)

    here = await stage(apps.ledger(unique("range"), state=accounts))
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append), records=20):
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        await tab(page, "State")
        state = page.get_by_role("region", name="State", exact=True)
        browse = state.get_by_role("form", name=re.compile("^Browse"))
        keys = state.locator("tbody td:first-child")
        for start, end, prefix, found in (
            ("k12", "k16", "", ["k12", "k13", "k14", "k15"]),
            ("", "k12", "k1", ["k1", "k10", "k11"]),
            ("k9", "", "", ["k9"]),
        ):
            for label, text in (("From key", start), ("Before key", end), ("Prefix", prefix)):
                await browse.get_by_label(label).fill(text)
            await browse.get_by_label("Prefix").press("Enter")
            await expect(keys).to_have_text(found)
