"""The history of a key on the page, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect

from snapreplay.api.server import HttpServer
from snapreplay.service.control.histories import KeyHistory, ReadKeyHistory
from snapreplay.service.control.state_reads import AnsweredBy, NotReadable, PartRead, ReadAt, StateAnswer
from tests.api.test_key_history import CHANGES, FOUND
from tests.page.looking import looked_at, says
from tests.support import apps
from tests.support.fake_control import FakeControl
from tests.support.served import served

pytestmark = pytest.mark.kafka
AT = ReadAt(0, 60, {"payments": 500}, 130, AnsweredBy.OWNER, 0.0, "", "p1", "host-a")


async def test_the_changes_of_a_key_are_below_its_value(stage: Any, unique: Any, page: Page) -> None:
    """Set, deleted and set again: by keyboard, newest first. A key that is gone is asked for where it was not found."""
    here = await stage(apps.told(unique("told")))
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append)) as service:
        for records in ([("ada", 1), ("bob", 7)], [("ada", None)], [("ada", 2), ("bob", None)]):
            await here.send(records)
            await here.all_processed(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        state = page.get_by_role("region", name="State", exact=True)
        await state.get_by_label("Key").fill("ada")
        await state.get_by_role("button", name="Look up").click()
        await state.get_by_role("button", name="Changes of ada in partition 0").press("Enter")
        changes = state.get_by_role("region", name="Batches that changed it: table")
        await expect(changes.locator("tbody td:nth-child(3)")).to_have_text(["2", "deleted", "1"])
        await expect(changes.get_by_role("row").nth(1)).to_contain_text(here.input)
        await expect(state).to_contain_text("These are all changes since the first batch.")
        await expect(state.get_by_role("button", name="Read further back")).to_have_count(0)
        await looked_at(page, "key-history", ".changes")
        await state.get_by_label("Key").fill("bob")
        await state.get_by_role("button", name="Look up").click()
        await expect(changes).to_have_count(0)
        await state.get_by_role("button", name="Changes in partition 0").click()
        await expect(changes.locator("tbody td:nth-child(3)")).to_have_text(["deleted", "7"])


async def test_what_is_not_whole_is_said_and_read_further(page: Page) -> None:
    """How far it was read, what was not recorded, and what cannot be read; the next answer is put behind the first."""
    control = FakeControl()
    control.reading = lambda _: StateAnswer((PartRead(AT, (("ada", b"\x05"),)),), (), 1)
    answers: dict[int | None, KeyHistory] = {
        None: FOUND,
        37: KeyHistory(2, 20, 0, is_whole=False, changes=CHANGES[:1], partition_count=1),
        20: KeyHistory(None, None, 0, is_whole=False, changes=(), partition_count=1),
    }
    is_down = [False]

    def read(asked: ReadKeyHistory) -> KeyHistory:
        if is_down[0]:
            raise NotReadable(0, "unknown", "its log cannot be read: no broker")
        return msgspec.structs.replace(answers[asked.before])

    control.key_histories = read
    async with served(control) as url:
        await page.goto(url)
        state = page.get_by_role("region", name="State", exact=True)
        await state.get_by_label("Key").fill("ada")
        await state.get_by_role("button", name="Look up").click()
        await state.get_by_role("button", name="Changes of ada").click()
        await expect(state).to_contain_text("Read back to batch 3. 1 of these batches do not say what they changed.")
        is_down[0] = True
        await state.get_by_role("button", name="Read further back").click()
        await expect(state.get_by_role("alert")).to_contain_text("its log cannot be read: no broker")
        is_down[0] = False
        for expected in ("Read back to batch 2.", "where the log begins: what is older was trimmed"):
            await state.get_by_role("button", name="Read further back").click()
            await expect(state).to_contain_text(expected)
        batches = state.get_by_role("region", name="Batches that changed it: table").locator("tbody td:nth-child(2)")
        await expect(batches).to_have_text(["9", "7", "4", "9"])
        await expect(state.get_by_role("button", name="Read further back")).to_have_count(0)
