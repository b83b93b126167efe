"""The page shows what an app has stored as it is, whatever that is, in a real browser."""

from __future__ import annotations

import msgspec
from playwright.async_api import Page, expect

from snapreplay.service.control.histories import KeyHistory, ReadKeyHistory
from snapreplay.service.control.state_reads import PartRead, StateAnswer
from snapreplay.service.control.status import StoreStatus
from tests.page.looking import looked_at
from tests.page.test_key_history import AT
from tests.page.test_refusals import of_many
from tests.support.fake_control import LIVE, NO_CHANGES, FakeControl
from tests.support.served import served

LARGE = 2**53 + 1
"""The first integer that a number of JavaScript cannot hold."""
LONGEST = "s" * 100
STORED = {
    LARGE: {"ids": [LARGE, -LARGE], "n": 7},
    "\u202ead\u202ca": "a\u200bb\x9b",
    "tea\x00\x1b[31m\n": "<b>",
    "": None,
}
SHOWN = [
    [str(LARGE), f'{{"ids":[{LARGE},-{LARGE}],"n":7}}'],
    ["\\u202ead\\u202ca", '"a\\u200bb\\u009b"'],
    ["tea\\u0000\\u001b[31m\\n", '"<b>"'],
    ["empty", "null"],
]


def with_values() -> FakeControl:
    """Make a process whose only partition has `STORED` in each store; one store has the longest name."""
    control = of_many(msgspec.structs.replace(LIVE, stores=(StoreStatus(LONGEST, 4, 200, 90), *LIVE.stores)))
    items = tuple((key, msgspec.msgpack.encode(value)) for key, value in STORED.items())
    control.reading = lambda _: StateAnswer((PartRead(AT, items),), (), 1)
    return control


async def test_no_digit_and_no_character_is_lost(page: Page) -> None:
    """Large integers are exact, what cannot be seen is written out, and the changes of such a key can be read."""
    control = with_values()
    asked: list[str] = []

    def read(history: ReadKeyHistory) -> KeyHistory:
        asked.append(history.key)
        return NO_CHANGES

    control.key_histories = read
    async with served(control) as url:
        await page.goto(url)
        state = page.get_by_role("region", name="State", exact=True)
        await state.get_by_role("button", name="Browse").click()
        rows = state.locator("table.entries tbody tr")
        await expect(rows).to_have_count(len(SHOWN))
        for row, (key, value) in zip(await rows.all(), SHOWN, strict=True):
            await expect(row.locator("td").nth(0)).to_have_text(key)
            await expect(row.locator("td").nth(1)).to_have_text(value)
        for row in (await rows.all())[:3]:
            await row.get_by_role("button").click()
            await expect(state.get_by_text("The log could not be read back to a batch.")).to_be_visible()
        assert asked == [str(LARGE), *list(STORED)[1:3]]
        await looked_at(page, "stored_values")
