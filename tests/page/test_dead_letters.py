"""The dead letters on the page: their reason, their record, and the way back, in a real browser."""

import asyncio
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, Route, expect

from snapreplay.service.control.kafka_reads import LETTERS_MAX, DeadLetter, DeadLetterList
from tests.page.looking import looked_at, tab
from tests.page.test_states import healthy
from tests.support import apps
from tests.support.fake_control import NOW
from tests.support.served import served

TOPIC = "ledger-dead-letters"
SENT = DeadLetter(0, 0, NOW, "ValueError", "why", "1", "sent_back", topic="payments", key="k", value='{"n": 1}')


def but(offset: int, **changes: Any) -> DeadLetter:
    return msgspec.structs.replace(SENT, offset=offset, **changes)


LEFT = but(1, state="passed_over", passed_over="timer", topic="", timer="remind", key=None, value=None)
OPEN = but(2, state="open")


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        ([SENT], "All records were sent back."),
        ([SENT, LEFT], f"None in {TOPIC} is open. 1 was skipped."),
        ([SENT, LEFT, OPEN], f"1 dead letter in {TOPIC} is open. Deploy a fixed handler, then redrive. 1 was skipped."),
        ([but(n) for n in range(LETTERS_MAX)], f"None of the newest 100 in {TOPIC} is open. Older ones are not shown."),
    ],
    ids=["sent", "passed-over", "open", "older"],
)
async def test_what_became_of_them_is_said(page: Page, letters: list[DeadLetter], said: str) -> None:
    """All that are shown, and no others, are spoken of. Those that are not shown may be open: the button is on."""
    control = healthy()
    control.letters = DeadLetterList(TOPIC, tuple(letters))
    async with served(control) as url:
        await page.goto(f"{url}#dead-letters")
        region = page.get_by_role("region", name="Dead letters", exact=True)
        await expect(region.locator("p").first).to_have_text(said)
        await expect(region.get_by_role("button", name="Redrive")).to_be_enabled()


async def test_each_digit_counts_a_cut_is_said_and_what_is_folded_is_not_built(page: Page) -> None:
    """A value of a hundred thousand items has its first hundred, once it is unfolded."""
    many = [[{"id": 9007199254740993, "text": "x" * 60}, 1], list(range(100_000))]
    values = [msgspec.json.encode(many).decode(), "1" * 4000]
    control = healthy()
    control.letters = DeadLetterList(
        TOPIC, tuple(but(n, value=each, value_is_cut=n == 1, headers_left_out=n * 3) for n, each in enumerate(values))
    )
    async with served(control) as url:
        await page.goto(f"{url}#dead-letters")
        whole, cut = (page.get_by_role("article").nth(n) for n in range(2))
        for each in (whole, cut):
            await each.get_by_text("Record", exact=True).click()
        await expect(whole).to_contain_text("9007199254740993")
        await expect(cut).to_contain_text("Its first 4,000 characters: 1111")
        await expect(cut).to_contain_text("3 more")
        numbers = whole.locator("details", has_text="100,000 items").last
        if await numbers.get_attribute("open") is not None:
            await numbers.locator("summary").click()
        await expect(numbers.get_by_role("listitem")).to_have_count(0)
        await numbers.locator("summary").click()
        await expect(numbers.get_by_role("listitem")).to_have_count(101)
        await expect(numbers).to_contain_text("… 99,900 more")
        await looked_at(page)


async def test_they_are_read_again_by_the_button_after_a_failure_too(page: Page) -> None:
    """A redrive by the command changes nothing else that this page knows."""
    control = healthy()
    control.letters = DeadLetterList(TOPIC, (OPEN,))

    async def cut(route: Route) -> None:
        await route.abort()

    async with served(control) as url:
        await page.goto(f"{url}#dead-letters")
        region = page.get_by_role("region", name="Dead letters", exact=True)
        await expect(region).to_contain_text("1 dead letter in")
        control.letters = DeadLetterList(TOPIC, (SENT,))
        again = region.get_by_role("button", name="Read again")
        await page.route("**/dead-letters", cut)
        await again.click()
        await expect(region.get_by_role("alert")).to_have_text("No answer: ask again")
        await page.unroute("**/dead-letters")
        await again.click()
        await expect(region.get_by_role("alert")).to_have_count(0)
        await expect(region).to_contain_text("All records were sent back.")


async def test_a_dead_letter_is_read_and_sent_back(stage: Any, unique: Any, children: Any, page: Page) -> None:
    """The handler is not fixed, so the record fails again: the old letter was sent back, the new one was not."""
    here = await stage(apps.ledger(unique("letters")), errors={"policy": "dead_letter"})
    child = children.start("poisoned", here.app.app_id, errors__policy="dead_letter")
    await asyncio.to_thread(child.wait_live)
    await page.goto(child.url)
    await tab(page, "Dead letters")
    letters = page.get_by_role("region", name="Dead letters", exact=True)
    await expect(letters).to_contain_text("None. Every record was processed.")
    await here.send([("0:k", {"amount": 1, "poison": True})])
    letter = letters.get_by_role("article")
    await expect(letter).to_have_count(1)
    await expect(letter).to_contain_text("ValueError")
    await letter.get_by_text("Record", exact=True).click()
    await expect(letter).to_contain_text("poison")
    await looked_at(page)
    await letters.get_by_role("button", name="Redrive").click()
    await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await expect(page.locator(".notice")).to_contain_text("Redrive: succeeded 1 record sent back")
    await expect(letter).to_have_count(2)
    await expect(letters.locator(".badge.past")).to_have_text("– sent back")
    await tab(page, "Overview")
    await expect(page.get_by_role("region", name="Topology")).to_contain_text("2 since the processes started")
