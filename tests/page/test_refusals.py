"""The page says which requests are refused or not answered, and shows many partitions with one trouble as one."""

import asyncio
import re
import threading
import time

import msgspec
import pytest
from playwright.async_api import Page, Route, expect

from snapreplay.api.asking import COMMAND_SECONDS, Asking
from snapreplay.api.views import LISTED_MAX
from snapreplay.service.control.operations import Command, DrillPartition, Operation
from snapreplay.service.control.protocol import Check
from snapreplay.service.control.status import BlockedTopic
from tests.page.looking import details, looked_at, opened, says, tab
from tests.page.test_states import Held
from tests.support.fake_control import FAILED, LIVE, FakeControl, ago
from tests.support.served import LATE, control_of, peer, program, served

MANY = 12


def of_many(*statuses: object, **changes: object) -> FakeControl:
    """Make a process with these partitions; with `changes`, as many as `MANY` live ones that have them."""
    found = statuses or [msgspec.structs.replace(LIVE, partition=number, **changes) for number in range(MANY)]
    control = FakeControl(found)  # type: ignore[arg-type]  # they are statuses
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=len(found))
    return control


async def test_a_refusal_that_comes_after_its_question_was_left_is_said(page: Page) -> None:
    """Escape leaves the question while the request is under way: what became of it is not silent."""
    held = await Held.of(page)
    async with opened(page, of_many(msgspec.structs.replace(FAILED, partition=0))):
        await page.route("**/trigger-snapshot", held.hold)
        await tab(page, "Snapshots")
        await page.get_by_role("button", name="Write snapshots").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Write snapshots").click()
        await held.has_one.wait()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await page.get_by_role("button", name="Create a savepoint").click()
        held.release()
        notice = page.locator(".notice")
        await expect(notice).to_contain_text("Write snapshots Refused: no partition is live: there is nothing to do")
        await expect(dialog.get_by_role("heading")).to_have_text("Create a savepoint?")
        await page.keyboard.press("Escape")
        await looked_at(page)
        await notice.get_by_role("button", name="Close this message").click()
        await expect(notice).to_have_count(0)


async def test_what_a_late_service_was_asked_for_is_asked_again_and_done_once(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runners' loop is blocked for longer than HTTP waits for it, which then is that nothing was started."""
    control, loop, perform = of_many(), asyncio.get_running_loop(), Asking.perform
    codes: list[int] = []

    async def late(self: Asking, command: Command) -> Operation:
        if not blocked.is_set():  # the first request has come: the loop is blocked before it gets it
            blocked.set()
            loop.call_soon_threadsafe(time.sleep, COMMAND_SECONDS + 1)
        return await perform(self, command)

    blocked = threading.Event()
    monkeypatch.setattr(Asking, "perform", late)
    async with opened(page, control):
        page.on("response", lambda answer: codes.append(answer.status) if answer.request.method == "POST" else None)
        await tab(page, "Snapshots")
        await page.get_by_role("button", name="Write snapshots").click()
        await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
        await expect(page.locator(".notice")).to_contain_text("Snapshot: running")
        await expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(control.operations()) == 1
    assert codes[0] == 503
    assert codes[-1] == 202


async def test_an_operation_behind_the_last_50_is_followed_to_its_end(page: Page) -> None:
    """The status does not list it any more, so the page asks for it by its id."""
    control = of_many()
    async with opened(page, control):
        await tab(page, "Snapshots")
        await page.get_by_role("button", name="Write snapshots").click()
        await page.get_by_role("dialog").get_by_role("button", name="Write snapshots").click()
        await expect(page.locator(".notice")).to_contain_text("Snapshot: running")
        (first,) = control.operations()
        for _ in range(LISTED_MAX):
            control.finish(control.perform(DrillPartition(partition=0)), "succeeded")
        control.finish(first, "failed")
        await expect(page.locator(".notice")).to_contain_text("Snapshot: failed")


async def test_of_several_retries_the_refusal_of_one_stops_no_other(page: Page) -> None:
    """It is said how many were begun, and of which one it is refused."""
    control = of_many(*(msgspec.structs.replace(FAILED, partition=number) for number in range(3)))
    async with opened(page, control):
        await page.get_by_role("button", name="Retry 3 partitions").click()
        control.statuses[0] = LIVE
        await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
        alert = page.get_by_role("dialog").get_by_role("alert")
        await expect(alert).to_contain_text(
            "Refused: partition 0 is live: there is nothing to retry. 2 of 3 were begun"
        )
    assert {part.partition for each in control.operations() for part in each.parts} == {1, 2}


async def test_partitions_with_one_trouble_have_one_card(page: Page) -> None:
    """However many they are. The command is for them, and for no other: that may be paused on purpose."""
    reason = "topic ledger-snapshots does not exist"
    async with opened(page, of_many(recoverable=False, unrecoverable_reason=reason)) as url:
        await says(page, "✕ Partitions 0–11 are live, but could not be restored now")
        cards = page.get_by_role("main").locator("article.problem")
        await expect(cards).to_have_count(1)
        await expect(cards).to_contain_text(f"Partition 0: {reason}")
        await looked_at(page)
    async with opened(page, of_many(paused_since=ago(60), paused_reason="repairs")) as url:
        await says(page, re.compile("Partitions 0–11 are paused"))
        await expect(cards).to_have_count(1)
        command = "snapreplay resume" + "".join(f" --partition {number}" for number in range(12)) + f" --url {url}"
        await expect(cards.locator("[data-copy]")).to_have_attribute("data-copy", command)


async def test_what_matters_most_fits_a_phone(page: Page) -> None:
    """Lags, and who carries out what, are seen without moving a table sideways."""
    control = of_many()
    control.peers = (peer("p2", "http://127.0.0.1:1"),)
    control.perform(DrillPartition(0))
    async with served(control) as url:
        await page.set_viewport_size({"width": 360, "height": 900})
        await page.goto(url)
        await details(page, 0)
        table = page.get_by_role("region", name="Inputs of partition 0: table")
        assert await table.evaluate("it => it.scrollWidth <= it.clientWidth")
        await tab(page, "Operations")
        table = page.get_by_role("region", name="Operations: table")
        await expect(table).to_contain_text("drill host-a")
        assert await table.evaluate("it => it.scrollWidth <= it.clientWidth")


async def test_a_read_that_is_not_answered_is_explained_in_words(page: Page) -> None:
    """Not in those of the browser; a refusal is shown with what to do."""
    control = of_many()
    control.histories = None

    async def cut(route: Route) -> None:
        await route.abort()

    async with opened(page, control):
        await tab(page, "History")
        read, alert = page.get_by_role("button", name="Read it again"), page.get_by_role("alert")
        await expect(alert).to_contain_text("its log cannot be read: no broker")
        await expect(alert).to_contain_text("GET /restore-status")
        await page.route("**/history", cut)
        await read.click()
        await expect(alert).to_have_text("No answer: ask again")
        await tab(page, "Snapshots")
        await page.route("**/api/v1/savepoints", cut)
        await page.get_by_role("button", name="Read them from Kafka").click()
        await expect(page.get_by_role("region", name="Savepoints", exact=True).get_by_role("alert")).to_have_text(
            "No answer: ask again"
        )


async def test_what_a_process_said_last_is_not_told_as_true(page: Page) -> None:
    """It ended, and its partition has no owner yet: that was at risk, how long it was live and what held it back is not
    known any more."""
    one, two = control_of("p1"), control_of("p2")
    blocked = (BlockedTopic("payments", 500, 40),)
    risk = {"recoverable": False, "unrecoverable_reason": "topic ledger-snapshots does not exist"}
    one.statuses = {0: msgspec.structs.replace(LIVE, recoverable=True)}
    two.statuses = {1: msgspec.structs.replace(LIVE, partition=1, blocked_by_open_transaction=blocked, **risk)}
    for each in (one, two):
        each.service_facts = msgspec.structs.replace(each.service_facts, partition_count=2)
    async with served(one, LATE) as url:  # one that is late with its bye is not dead
        async with served(two) as other:
            one.peers = (peer("p2", other, 1),)
            await page.goto(url)
            await says(page, re.compile("Partition 1 is live, but could not be restored now"))
            await expect(page.get_by_role("article", name="payments-1 delivers nothing")).to_be_visible()
        await says(page, re.compile("Partition 1 could not be restored when its process answered last"))
        card = page.get_by_role("article", name="Partition 1 could not be restored")
        await expect(card).to_contain_text("If the process still runs on host host-p2, keep it alive")
        await expect(card).to_contain_text("Perhaps: the state in the memory of that process may be the only copy.")
        await expect(page.get_by_role("article", name="payments-1 delivers nothing")).to_have_count(0)
        cell = page.get_by_role("list", name="Partitions of name-p2").get_by_role("link")
        await expect(cell).to_have_accessible_name("Partition 1, was live: details")
        await looked_at(page)


async def test_a_dead_process_whose_partitions_others_have_is_no_outage(page: Page) -> None:
    """Nothing of it is left to be taken over: the page says so, and there is no hurry."""
    one = of_many(*(msgspec.structs.replace(LIVE, partition=number, owner_epoch=900) for number in range(4)))
    with program("p2") as two:
        one.peers = (peer("p2", two.url, 0, 1, 2, 3),)
        async with opened(page, one):
            await says(page, re.compile("Healthy"))
            two.process.kill()
            await says(page, "! Process name-p2 on host-p2 seems to be dead")
            card = page.get_by_role("article", name="Process name-p2")
            await expect(card).to_contain_text("No. Other processes have taken over what it has committed.")
            await expect(card).not_to_contain_text("given to it")
            await looked_at(page)


async def test_while_no_broker_answers_no_process_is_said_to_take_over(page: Page) -> None:
    """The process that is asked has no contact with the group, and says so first; then which other one is gone."""
    one = of_many(*(msgspec.structs.replace(LIVE, partition=number) for number in range(3)))
    document, cut_off = one.document, Check("member", ok=False, detail="no broker answers for the app's group")
    one.document = lambda: msgspec.structs.replace(document(), ready_checks=(cut_off,))  # type: ignore[method-assign]  # as it says
    with program("p2") as two:
        one.service_facts = msgspec.structs.replace(one.service_facts, partition_count=4)
        one.peers = (peer("p2", two.url, 3),)
        async with opened(page, one):
            await expect(page.get_by_role("link", name="name-p2")).to_be_visible()
            two.process.kill()
            await says(page, "✕ Process host-a has no contact with the app's group, and 1 more")
            card = page.get_by_role("article", name="Process name-p2")
            await expect(card).to_contain_text("takes nothing over. Repair that first.")
